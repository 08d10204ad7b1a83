"""A program of the swarm design that knows nothing of Postroom: files and JSON alone, as the design has them.

Run with what it shall do, one JSON list per argument, such as `["send", {...}]`; answers a JSON line for each.
Its index is private to the process, its times are naive, and its archive step removes before it writes: as there.
"""

from __future__ import annotations

import json
import sys
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

Fields = dict[str, Any]


class Stranger:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[str, Fields] = {}
        for path in root.glob("*/inbox/MSG-*.json"):
            fields = json.loads(path.read_text(encoding="utf-8"))
            self.known[fields["id"]] = fields

    def send(self, **message: Any) -> Fields:
        fields = {
            "id": f"MSG-{uuid.uuid4().hex[:12]}",
            "from_agent": message["from_agent"],
            "to_agent": message["to_agent"],
            "swarm_name": message.get("swarm_name"),
            "type": message.get("type", "request"),
            "subject": message.get("subject", "From a stranger"),
            "body": message.get("body", "hello"),
            "payload": message.get("payload", {}),
            "priority": message.get("priority", 2),
            "created_at": datetime.now().isoformat(),  # noqa: DTZ005 - as in the design
            "expires_at": message.get("expires_at"),
            "status": "unread",
            "read_at": None,
            "completed_at": None,
            "reply_to": message.get("reply_to"),
            "thread_id": message.get("thread_id"),
            "context": message.get("context", {}),
            "attachments": message.get("attachments", []),
            "tags": message.get("tags", []),
        }
        self.save(fields)
        self.known[fields["id"]] = fields
        return fields

    def broadcast(self, swarm: str, **message: Any) -> list[Fields]:
        """To each member file of the project around the mailboxes, by its bare name."""
        agents = self.root.parent.parent / "swarms" / swarm / "agents"
        names = sorted(path.stem for path in agents.glob("*.md") if not path.name.startswith("_"))
        tags = ["broadcast", f"swarm:{swarm}"]
        return [
            self.send(**message, to_agent=name, swarm_name=swarm, tags=tags)
            for name in names
            if name != message["from_agent"]
        ]

    def reply(self, id: str, from_agent: str, body: str) -> Fields:
        original = self.known[id]
        return self.send(
            from_agent=from_agent,
            to_agent=original["from_agent"],
            subject=f"Re: {original['subject']}",
            body=body,
            type="response",
            priority=original["priority"],
            swarm_name=original["swarm_name"],
            reply_to=id,
            thread_id=original["thread_id"] or id,
        )

    def check(self, agent: str) -> list[Fields]:
        mine = [each for each in self.known.values() if each["to_agent"] == agent and each["status"] == "unread"]
        return sorted(mine, key=lambda each: (-each["priority"], each["created_at"]))

    def mark(self, id: str, status: str) -> Fields:
        fields = self.known[id]
        fields["status"] = status
        if status == "read":
            fields["read_at"] = datetime.now().isoformat()  # noqa: DTZ005
        if status == "completed":
            fields["completed_at"] = datetime.now().isoformat()  # noqa: DTZ005
        self.save(fields)
        return fields

    def archive(self, id: str) -> Fields:
        fields = self.known[id]
        self.path(fields, "inbox").unlink()
        fields["status"], fields["completed_at"] = "archived", datetime.now().isoformat()  # noqa: DTZ005
        path = self.path(fields, "archive")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(fields, indent=2), encoding="utf-8")
        return fields

    def save(self, fields: Fields) -> None:
        path = self.path(fields, "inbox")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".json.tmp")
        draft.write_text(json.dumps(fields, indent=2), encoding="utf-8")
        draft.rename(path)

    def path(self, fields: Fields, place: str) -> Path:
        folder: str = fields["to_agent"].replace("/", "_")
        return self.root / folder / place / f"{fields['id']}.json"


if __name__ == "__main__":
    stranger = Stranger(Path(sys.argv[1]))
    for call in sys.argv[2:]:
        verb, fields = json.loads(call)
        print(json.dumps(getattr(stranger, verb)(**fields)))

"""Another program that uses the same folders, as the design describes them: no lock, no index, nothing of ours.

It reads and rewrites the registry whole, drops mail by renaming a file into an inbox, and moves what it has read.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Stranger:
    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.count = 0

    def registry(self) -> dict[str, Any]:
        path = self.root / "_registry.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def rewrite(self, entries: dict[str, Any]) -> None:
        self._put(self.root / "_registry.json", json.dumps(entries, ensure_ascii=False, indent=2))

    def enrol(self, **more: Any) -> None:
        now = datetime.now(UTC).isoformat()
        entry = {"agent_id": self.name, "status": "idle", "registered_at": now, "last_heartbeat": now} | more
        self.rewrite(self.registry() | {self.name: entry})

    def beat(self) -> None:
        entries = self.registry()
        entries[self.name]["last_heartbeat"] = datetime.now(UTC).isoformat()
        self.rewrite(entries)

    def drop(self, to: str, text: str) -> None:
        """Mail, in a file named by whole seconds, as the design has it."""
        self.count += 1
        inbox = self.root / to / "inbox"
        inbox.mkdir(parents=True, exist_ok=True)
        mail = {
            "id": f"msg_{self.name}_{self.count}",
            "from": self.name,
            "to": to,
            "timestamp": datetime.now(UTC).isoformat(),
            "type": "message",
            "content": {"parts": [{"type": "text", "text": text}]},
        }
        self._put(inbox / f"{int(time.time())}_{self.name}{self.count}.msg.json", json.dumps(mail))

    def fetch(self) -> list[str]:
        texts = []
        for path in sorted((self.root / self.name / "inbox").glob("*.msg.json")):
            mail = json.loads(path.read_text(encoding="utf-8"))
            texts.append(mail["content"]["parts"][0]["text"])
            processed = self.root / self.name / "processed"
            processed.mkdir(exist_ok=True)
            path.rename(processed / path.name)
        return texts

    def _put(self, path: Path, text: str) -> None:
        aside = path.with_name(f".{self.name}.{os.getpid()}.tmp")
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)


def main(root: str, name: str, peer: str, letters: str) -> None:
    """Enrol, and answer each letter of a peer, while beating."""
    stranger, answered = Stranger(Path(root), name), 0
    stranger.enrol()
    end = time.monotonic() + 60
    while answered < int(letters) and time.monotonic() < end:
        for text in stranger.fetch():
            stranger.drop(peer, f"re: {text}")
            answered += 1
        if name not in stranger.registry():
            stranger.enrol()
        stranger.beat()
        time.sleep(0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])

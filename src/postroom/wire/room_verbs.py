"""Our own verbs about who is there, and about the room itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from .. import service
from ..model.codec import to_plain
from .inbox_records import far_agent_record
from .plain import plain_agent, plain_stats, plain_template
from .saying import AGENT, LIMIT, box_of, some
from .table import Method, Param

if TYPE_CHECKING:
    from ..model.health import Diagnosis
    from ..room import Room

NAME = Param("name", "text", "its name", required=True)
CARD = (
    Param("display_name", "text", "a name for people"),
    Param("description", "text", "what it is for"),
    Param("capabilities", "list", "what it can do"),
    Param("program", "text", "what runs it"),
    Param("model", "text", "the model behind it"),
    Param("scopes", "list", "the teams it is in"),
    Param("allow_from", "list", "who may write to it"),
    Param("max_concurrent_tasks", "count", "how many tasks at once"),
    Param("metadata", "object", "anything else"),
)

# -- agents


def _register(room: Room, said: dict[str, Any]) -> Any:
    card = {param.name: said[param.name] for param in CARD if param.name in said}
    return {"agent": plain_agent(box_of(room, said).register(**card))}


def _heartbeat(room: Room, said: dict[str, Any]) -> Any:
    return {
        "agent": plain_agent(
            box_of(room, said).heartbeat(**some(said, "current_tasks", "poll_interval", "active"))
        )
    }


def _goodbye(room: Room, said: dict[str, Any]) -> Any:
    return {"agent": plain_agent(box_of(room, said).leave(**some(said, "dormant")))}


def _agents(room: Room, said: dict[str, Any]) -> Any:
    here = [plain_agent(agent) for agent in room.agents(**some(said, "scope", "capability", "gone"))]
    if not said.get("elsewhere"):
        return {"agents": here}
    told = service.elsewhere.told_of(room._office, room.principal)
    return {"agents": here, "elsewhere": [far_agent_record(*one) for one in told]}


def _agent(room: Room, said: dict[str, Any]) -> Any:
    return {"agent": plain_agent(room.agent(said["name"]))}


def _block(room: Room, said: dict[str, Any]) -> Any:
    return {"blocked": box_of(room, said).block(said["name"])}


def _unblock(room: Room, said: dict[str, Any]) -> Any:
    return {"blocked": box_of(room, said).unblock(said["name"])}


def _blocked(room: Room, said: dict[str, Any]) -> Any:
    return {"blocked": box_of(room, said).blocked()}


# -- templates


def _templates(room: Room, _said: dict[str, Any]) -> Any:
    return {"templates": [plain_template(template) for template in room.templates()]}


def _template(room: Room, said: dict[str, Any]) -> Any:
    return {"template": plain_template(room.template(said["name"]))}


def _save_template(room: Room, said: dict[str, Any]) -> Any:
    told = some(said, "body", "subject", "kind", "priority", "tags")
    return {"template": plain_template(room.save_template(said["name"], **told))}


def _delete_template(room: Room, said: dict[str, Any]) -> Any:
    room.delete_template(said["name"])
    return {"deleted": said["name"]}


# -- the room


def _rename(room: Room, said: dict[str, Any]) -> Any:
    room.rename(said["old"], said["new"])
    return {"old": said["old"], "new": said["new"]}


def _room_stats(room: Room, _said: dict[str, Any]) -> Any:
    return plain_stats(room.stats())


def _doctor(room: Room, said: dict[str, Any]) -> Any:
    return plain_diagnosis(room.doctor(**some(said, "full")))


def _sweep(room: Room, _said: dict[str, Any]) -> Any:
    return to_plain(asdict(room.sweep()))


def _cursor(room: Room, _said: dict[str, Any]) -> Any:
    return {"cursor": str(room.cursor())}


def _changes(room: Room, said: dict[str, Any]) -> Any:
    changes, cursor = room.changes(said["since"], **some(said, "limit"))
    return {"changes": [to_plain(change) for change in changes], "cursor": str(cursor)}


def plain_diagnosis(found: Diagnosis) -> dict[str, Any]:
    findings = [
        {"check": f.check, "level": str(f.level), "what": f.what, "hint": f.hint, "repaired": f.repaired}
        for f in found.findings
    ]
    return {"healthy": found.is_healthy, "worst": str(found.worst), "findings": findings}


def _own(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    said = {"action": name, "whose": "agent_id"} | more
    return Method(name=name, about=about, run=run, params=(AGENT, *params), result=result, **said)


def _of_the_room(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    return Method(name=name, about=about, run=run, params=params, result=result, **{"action": "room", **more})


ROWS = (
    _own("register", "say who you are", _register, *CARD, result="agent"),
    _own("heartbeat", "a sign of life", _heartbeat, Param("current_tasks", "list", "what you work on"),
         Param("poll_interval", "seconds", "how often you look"), Param("active", "flag", "you did something"),
         result="agent"),
    _own("goodbye", "you leave; mail that comes meanwhile waits", _goodbye,
         Param("dormant", "flag", "sleep: you do not expire, and your next heartbeat wakes you"),
         result="agent", action="heartbeat"),
    _own("block", "refuse somebody's mail", _block, NAME, result="blocked"),
    _own("unblock", "take it again", _unblock, NAME, result="blocked", action="block"),
    _own("blocked", "whose mail is refused here", _blocked, result="blocked", action="block", writes=False),
    _of_the_room("agents", "who is there, what they can do, how they are", _agents,
                 Param("scope", "text", "only of this team"), Param("capability", "text", "only who can do this"),
                 Param("gone", "flag", "those that are gone, too"),
                 Param("elsewhere", "flag", "those that other systems told of, too"),
                 result="agents (card, presence), elsewhere (agentId, peerId, status)",
                 action="agents", many=True, writes=False),
    _of_the_room("agent", "one agent's card", _agent, NAME, result="agent", action="agents", writes=False),
    _of_the_room("templates", "all templates", _templates, result="templates", action="template", writes=False),
    _of_the_room("template", "one template", _template, NAME, result="template", action="template", writes=False),
    _of_the_room("save_template", "keep a recurring letter", _save_template, NAME,
                 Param("body", "text", "with {places}"), Param("subject", "text", "likewise"),
                 Param("kind", "text", "an open word"), Param("priority", "any", "low, normal, high or urgent"),
                 Param("tags", "list", "labels"), result="template", action="templates"),
    _of_the_room("delete_template", "drop a template", _delete_template, NAME, result="deleted",
                 action="templates"),
    _of_the_room("rename", "give an agent another name", _rename, Param("old", "text", "so far", required=True),
                 Param("new", "text", "from now on", required=True), result="old, new", action="rename", slow=True),
    _of_the_room("room_stats", "the room in numbers", _room_stats,
                 result="letters, deliveries, states, unread, agents, mailboxes", slow=True, writes=False),
    _of_the_room("doctor", "the room's health, with a real write and read", _doctor,
                 Param("full", "flag", "look at every letter"), result="healthy, worst, findings", action="doctor",
                 slow=True),
    _of_the_room("sweep", "one round of the janitor", _sweep, result="what was done, in numbers",
                 action="janitor", slow=True),
    _own("cursor", "now, to ask later what happened since; of an agent: up to the newest letter that came to it",
         _cursor, result="cursor", action="wait", writes=False),
    _of_the_room("changes", "what happened after a cursor", _changes, Param("since", "text", "a cursor",
                 required=True), LIMIT, result="changes, cursor", many=True, writes=False),
)  # fmt: skip

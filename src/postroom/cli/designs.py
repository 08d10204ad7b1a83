"""The commands for other designs: a chipset's state folder, nanobot's channel, and agent-swarm's file."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from .. import own_file
from ..chipset import STATE, Chipset, Witness
from ..chipset.folder import chosen
from ..chipset.notes import HEALTH_CHECK, RESPONSE
from ..errors import Invalid, PostroomError
from ..hosts.quick import state_of
from ..model.codec import to_plain
from ..nanobot.channel.doctor import diagnose
from ..swarm import install as swarm_files
from . import health
from .answer import Answer, printable
from .command import EVERYWHERE, Option, command
from .errors import NOTHING, CannotCreate, NoInput, cannot_write
from .output import one_line
from .parse import seconds
from .text import body_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..chipset import Hook, Nudge, Patience, Round
    from ..chipset.folder import Fields
    from ..errors import Unreadable
    from .answer import Screen
    from .command import Command
    from .context import Context


ANSWER_OF = Option(
    "--answer-of",
    help="the same for one agent, such as polecat-alpha=3m",
    kind="pair",
    many=True,
    metavar="NAME=SPAN",
)
_STATE = Option(
    "--state",
    help="the state folder; else that of the room, if it is a chipset's, else .chipset/state",
    metavar="FOLDER",
    complete="files",
)
AGENT = Option("AGENT", help="whose hook", required=True, complete="agents")
TEXT = Option("--body", help="the text; - reads it from standard input", metavar="TEXT")
NUDGES = ("health_check", "stall_warning", "priority_change", "abort", "sync_request")
_MAYOR = " Without --as and POSTROOM_AGENT you act as mayor."


# Field of the library -> the option that sets it.
_TYPED_AS = {
    "by": "as",
    "from": "as",
    "mayor": "as",
    "witness": "as",
    "bead_id": "bead",
    "message": "body",
}
SLOWEST = 600.0  # seconds between two rounds of the witness
_REPORTS = {
    "nudged": "Nudged {}.",
    "escalated": "Notified the mayor of {}, which does not answer.",
    "human": "Notified a human of {}, which was started too often.",
    "damaged": "Cannot be read: {}",
    "failed": "Not looked after this time: {}",
}


def _of_chipset(name: str, *options: Option, json: str = "hook", looks: bool = True, **declared: Any) -> Command:
    """Declare a command on the hooks of a state folder. Most show a hook, and make no folder to look into."""
    return command(f"chipset {name}", *options, _STATE, json=json, looks=looks, **declared)


# -- looking


@_of_chipset(
    "check",
    about="For an agent that starts or polls: work on your hook comes before anything else. Changes nothing.",
    examples=(
        ("postroom chipset check --as polecat-alpha", "what is wanted of me?"),
        ("postroom chipset check --as polecat-alpha --json", "for a program"),
    ),
    json="hook nudge note",
)
def run_chipset_check(context: Context) -> Answer:
    """Show the caller's hook, its nudge and its last note."""
    with _chipset(context) as chipset:
        me = context.me
        nudge, note = chipset.nudges.unhandled(me), chipset.notes.latest(me)
        data = {
            "hook": chipset.hooks.get(me).to_dict(),
            "nudge": nudge and nudge.to_dict(),
            "note": note and _note(note),
        }
    return Answer(context.name, data, _checked)


@_of_chipset(
    "hooks",
    examples=(("postroom chipset hooks", "who has what"),),
    json="hooks damaged",
)
def run_chipset_hooks(context: Context) -> Answer:
    with _chipset(context) as chipset:
        hooks, broken = chipset.hooks.all()
    data = {"hooks": [hook.to_dict() for hook in hooks], "damaged": _damaged(broken)}
    return Answer(context.name, data, _listed)


@_of_chipset(
    "notes",
    Option("AGENT", help="whose; yours by default", complete="agents"),
    examples=(("postroom chipset notes polecat-beta --as mayor", "what it left behind"),),
    json="notes damaged",
)
def run_chipset_notes(context: Context) -> Answer:
    with _chipset(context) as chipset:
        agent = context.get("agent") or context.me
        notes, broken = chipset.notes.all(agent), chipset.notes.broken(agent)
    return Answer(context.name, {"notes": [_note(note) for note in notes], "damaged": _damaged(broken)}, _noted)


# -- the mayor


@_of_chipset(
    "dispatch",
    AGENT,
    Option("BEAD", help="the id of the work item", required=True),
    Option("--title", help="one line", metavar="TEXT"),
    TEXT,
    about=f"Only an agent that is a mayor or a dispatcher by its name may do this.{_MAYOR} If the command is cut off before"
    " the letter is sent, chipset remind sends it.",
    examples=(
        (
            "postroom chipset dispatch polecat-delta gt-abc12 --title 'Auth middleware' --body 'As in the plan.'",
            "hand out work",
        ),
    ),
    looks=False,
)
@_of_chipset(
    "remind",
    AGENT,
    TEXT,
    about=f"It is never sent twice: pass the same --body as before.{_MAYOR}",
    examples=(("postroom chipset remind polecat-alpha --body 'As in the plan.'", "after a crash"),),
)
@_of_chipset(
    "accept",
    AGENT,
    about=f"After you checked the work.{_MAYOR}",
    examples=(("postroom chipset accept polecat-gamma", "checked"),),
)
@_of_chipset(
    "reassign",
    AGENT,
    Option("TO", help="the agent that gets it", required=True, complete="agents"),
    TEXT,
    about=f"That is a restart: at most three for an item, 60 seconds apart; then a human is notified.{_MAYOR}",
    examples=(("postroom chipset reassign polecat-alpha polecat-delta", "polecat-alpha does not answer"),),
)
@_of_chipset(
    "clear",
    AGENT,
    about=f"The file stays, with an empty hook. A file that cannot be read is set aside first, and kept.{_MAYOR}",
    examples=(("postroom chipset clear polecat-alpha", "never mind"),),
)
def run_by_mayor(context: Context) -> Answer:
    """Do what the command names to an agent's hook, with the arguments that it takes."""
    context.default_me("mayor")
    step = context.name.removeprefix("chipset ")
    takes = [option.name for option in context.call.command.options] if context.call.command else []
    args = [context.get(name, "") for name in ("agent", "bead", "title", "to") if name in takes]
    args += [_text(context)] if "body" in takes else []
    with _chipset(context, needed=step != "dispatch") as chipset:
        if step == "clear":
            return _moved(context, chipset.hooks.clear(*args, by=context.me))
        return _moved(context, getattr(chipset.mayor(context.me), step)(*args))


# -- the agent that owns a hook


@_of_chipset(
    "activate",
    examples=(("postroom chipset activate --as polecat-alpha", "pending becomes active"),),
)
@_of_chipset(
    "touch",
    about="Run it now and then while you work: the witness nudges an agent that shows no activity.",
    examples=(("postroom chipset touch --as polecat-beta", "still here"),),
)
def run_by_owner(context: Context) -> Answer:
    step = context.name.removeprefix("chipset ")
    with _chipset(context, needed=True) as chipset:
        return _moved(context, getattr(chipset.hooks, step)(context.me))


@_of_chipset(
    "report",
    TEXT,
    Option("--to", help="who gets the report; mayor by default", metavar="NAME", complete="agents"),
    about="Run again after a crash, it completes what was left undone, and the report is sent once.",
    examples=(("postroom chipset report --as polecat-beta --body 'On branch auth.'", "done"),),
)
def run_chipset_report(context: Context) -> Answer:
    with _chipset(context, needed=True) as chipset:
        return _moved(context, chipset.report(context.me, _text(context), **context.passed_options("to")))


@_of_chipset(
    "note",
    Option("--bead", help="the work item", required=True, metavar="BEAD"),
    Option("--summary", help="where it stands", required=True, metavar="TEXT"),
    Option("--remaining", help="what is left to do", many=True, metavar="TEXT"),
    Option("--branch", help="where the work is", metavar="NAME"),
    Option("--last-commit", help="the last commit there", metavar="COMMIT"),
    Option("--session", name="session_outgoing", help="the session that ends", metavar="ID"),
    examples=(
        (
            "postroom chipset note --as polecat-beta --bead gt-1 --summary 'Half done.' --remaining tests --branch auth",
            "before a session ends",
        ),
    ),
    json="note",
    looks=False,
)
def run_chipset_note(context: Context) -> Answer:
    fields = context.passed_options("bead", "summary", "remaining", "branch", "last_commit", "session_outgoing")
    with _chipset(context) as chipset:
        note = chipset.notes.write(context.me, **fields)
    return Answer(context.name, {"note": _note(note)}, lambda _screen, data: _note_line(data["note"]))


# -- nudges


@_of_chipset(
    "nudge",
    Option("AGENT", help="the agent", required=True, complete="agents"),
    Option(
        "--type", help="what it is about; health_check by default", kind="word", choices=NUDGES, metavar="TYPE"
    ),
    TEXT,
    Option("--requires-response", help="an answer is wanted", kind="flag"),
    examples=(
        (
            "postroom chipset nudge polecat-beta --as mayor --type sync_request --body 'Where are you?'",
            "a question",
        ),
    ),
    json="nudge to",
    looks=False,
)
def run_chipset_nudge(context: Context) -> Answer:
    to, type, message = context.get("agent"), context.get("type", HEALTH_CHECK), _text(context)
    must_answer = "requires_response" in context.values
    with _chipset(context) as chipset:
        nudge = chipset.nudges.send(context.me, to, type, message, requires_response=must_answer)
    return _nudge_answer(context, nudge, to=to)


@_of_chipset(
    "answer",
    TEXT,
    about="The answer is written to the slot of the agent that nudged you. The nudge counts as handled, and work in hand is touched."
    " What lies in your slot may itself be an answer to a nudge of yours: that is handled, not answered.",
    examples=(("postroom chipset answer --as polecat-beta --body 'At the tests.'", "I am here"),),
    json="nudge to",
)
def run_chipset_answer(context: Context) -> Answer:
    message = _text(context)
    with _chipset(context, needed=True) as chipset:
        nudge = chipset.nudges.unhandled(context.me)
        response = nudge and chipset.answer(context.me, nudge, message)
    return _nudge_answer(context, response, to=nudge.sender if nudge else None)


@_of_chipset(
    "handle",
    examples=(("postroom chipset handle --as polecat-beta", "understood"),),
    json="nudge",
)
def run_chipset_handle(context: Context) -> Answer:
    with _chipset(context, needed=True) as chipset:
        nudge = chipset.nudges.unhandled(context.me)
        if nudge is not None:
            chipset.nudges.handle(context.me, nudge)
    return _nudge_answer(context, nudge)


# -- the witness


@command(
    "witness",
    _STATE,
    Option(
        "--mayor",
        help="the agent that is notified of a silent agent; mayor by default",
        metavar="NAME",
        complete="agents",
    ),
    Option(
        "--human",
        help="the agent that is notified when an item was started too often; human by default",
        metavar="NAME",
        complete="agents",
    ),
    Option(
        "--stall-after",
        help="without activity for so long, an agent has stalled: 1m to 30m, 5m by default",
        kind="seconds",
        metavar="SPAN",
    ),
    Option("--nudge-every", help="between two nudges: 30s to 10m, 2m by default", kind="seconds", metavar="SPAN"),
    Option(
        "--answer-within",
        help="for an answer to a nudge: 1s to 10m, 60s by default",
        kind="seconds",
        metavar="SPAN",
    ),
    ANSWER_OF,
    Option("--every", help="look so often; 5s by default", kind="seconds", metavar="SPAN"),
    Option("--once", help="one look, then end", kind="flag"),
    about="Looks at every hook until it is stopped, and prints what happened. An agent whose work shows no"
    " activity is nudged; if it stays silent, the mayor gets a health_escalation, and after the third restart of an"
    " item a human does. It never touches a hook. It may be stopped and started at any time, and several may run.\n\n"
    "Its letters go into the state folder's own mail, or into the room that --room names. Without --as or"
    " POSTROOM_AGENT, it is called witness.",
    examples=(
        ("postroom witness --once", "one look, from cron"),
        ("postroom witness --once --json --stall-after 10m --answer-of polecat-alpha=3m", "more patient"),
    ),
    json="at watched stalled nudged escalated human damaged failed",
    looks=True,
)
def run_witness(context: Context) -> Iterator[Answer]:
    """Look after the agents until stopped; answer at first, and whenever something happened."""
    pause, patience = health.pause_of(context, 5.0, SLOWEST), _patience(context)
    context.default_me("witness")
    with _chipset(context) as chipset:
        witness = Witness(chipset, name=context.me, patience=patience, **context.passed_options("mayor", "human"))
        seen = witness.look()
        yield _answer(context, chipset, seen)
        while not context.get("once"):
            time.sleep(pause)
            last, seen = seen, witness.look()
            if seen.has_news_after(last):
                yield _answer(context, chipset, seen)


@contextmanager
def _chipset(context: Context, *, needed: bool = False) -> Iterator[Chipset]:
    """Open the state folder. Errors name the options that were typed."""
    with _opened(context, needed=needed) as chipset:
        try:
            yield chipset
        except PostroomError as refused:
            refused.field = _as_typed(context, refused.field)
            raise


def _as_typed(context: Context, field: str | None) -> str | None:
    """Return the option or argument that sets what the library calls `field`."""
    if field is None or context.call.command is None:
        return field
    typed = {option.name: option.names[0] for option in (*EVERYWHERE, *context.call.command.options)}
    if field == "agent" and field not in context.values:  # then the caller is meant
        field = "as"
    return typed.get(field) or typed.get(_TYPED_AS.get(field, ""), field)


def _opened(context: Context, *, needed: bool) -> Chipset:
    """Open the state folder. Where it is `needed`, a missing one is an error and is not made."""
    context.check_named_room()
    folder = state_of(context.settings.store)
    state = os.path.expanduser(context.get("state", folder or STATE))  # noqa: PTH111 - text as it was typed
    if "state" in context.values and not os.path.isdir(state):  # noqa: PTH112
        raise NoInput(f"there is no folder {printable(state)}", field="--state")
    if needed and not os.path.isdir(state):  # noqa: PTH112
        raise NoInput(
            f"there is no state folder {printable(state)}",
            field="--state",
            hint="postroom chipset dispatch makes one, or give --state FOLDER",
        )
    elsewhere = "room" in context.values and ("state" in context.values or not folder)
    durable = context.settings.durability == "power"
    return Chipset(state, room=context.room if elsewhere else None, durable=durable)


def _patience(context: Context) -> Patience:
    answers = {name: seconds(span, ANSWER_OF) for name, span in context.get("answer_of", ())}
    try:
        return chosen(**context.passed_options("stall_after", "nudge_every", "answer_within"), answers=answers)
    except Invalid as wrong:
        option = "--answer-of" if wrong.field == "answers" else f"--{(wrong.field or '').replace('_', '-')}"
        raise Invalid(wrong.message, field=option, hint=wrong.hint) from None


# -- output


def _text(context: Context) -> str:
    """Return the text of --body, or an empty one."""
    return body_text(context, optional=True) or ""


def _moved(context: Context, hook: Hook) -> Answer:
    return Answer(context.name, {"hook": hook.to_dict()}, lambda _screen, data: _hook_line(data["hook"]))


def _note(note: Any) -> Fields:
    return {**note.to_dict(), "filename": note.filename}


def _damaged(broken: Sequence[Unreadable]) -> list[str]:
    return [printable(wrong.message) for wrong in broken]


def _checked(_screen: Screen, data: Mapping[str, Any]) -> str:
    nudge = _nudge_line(data["nudge"]) if data["nudge"] else ""
    note = _note_line(data["note"]) if data["note"] else ""
    return _hook_line(data["hook"]) + nudge + note


def _listed(_screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [_hook_line(hook) for hook in data["hooks"]] or ["No hooks yet.\n"]
    return "".join(lines) + _damaged_lines(data)


def _noted(_screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [_note_line(note) for note in data["notes"]] or ["No notes.\n"]
    return "".join(lines) + _damaged_lines(data)


def _damaged_lines(data: Mapping[str, Any]) -> str:
    return "".join(f"{_REPORTS['damaged'].format(one_line(one))}\n" for one in data["damaged"])


def _nudge_answer(context: Context, nudge: Nudge | None, **to: str | None) -> Answer:
    """Return the answer about a nudge; `to` is the agent whose slot it was put into."""
    return Answer(context.name, {"nudge": nudge and nudge.to_dict(), **to}, _nudged, code=0 if nudge else NOTHING)


def _nudged(_screen: Screen, data: Mapping[str, Any]) -> str:
    return _nudge_line(data["nudge"], data.get("to")) if data["nudge"] else "No nudge to act on.\n"


def _hook_line(hook: Mapping[str, Any]) -> str:
    item = hook["work_item"] or {}
    about = f", {one_line(item['bead_id'])}" if item else ""
    title = f" ({one_line(item['title'])})" if item.get("title") else ""
    since = f", last activity {hook['last_activity']}" if hook["last_activity"] else ""
    return f"{one_line(hook['agent_id'])}: {hook['status']}{about}{title}{since}\n"


def _nudge_line(nudge: Mapping[str, Any], to: str | None = None) -> str:
    what = "Answer" if nudge["type"] == RESPONSE else "Nudge"
    who = f"from {one_line(nudge['from'])}" if to is None else f"to {one_line(to)}"
    type = "" if nudge["type"] == RESPONSE else f", {nudge['type']}"
    message = f": {one_line(nudge['message'])}" if nudge["message"] else ""
    wants = ", wants an answer" if nudge["requires_response"] else ""
    return f"{what} {who}{type}{wants}{message}\n"


def _note_line(note: Mapping[str, Any]) -> str:
    left = f"; left to do: {', '.join(one_line(one) for one in note['remaining'])}" if note["remaining"] else ""
    where = f" (branch {one_line(note['branch'])})" if note["branch"] else ""
    return f"Note on {one_line(note['bead'])}{where}: {one_line(note['summary'])}{left}\n"


def _answer(context: Context, chipset: Chipset, seen: Round) -> Answer:
    at = to_plain(chipset.clock.now().wall)
    reports = {name: [printable(one) for one in found] for name, found in asdict(seen).items()}
    return Answer(context.name, {"at": at, **reports}, _view)


def _view(_screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [f"{len(data['watched'])} at work, {len(data['stalled'])} stalled."]
    lines += [words.format(one_line(one)) for name, words in _REPORTS.items() for one in data[name]]
    return "\n".join(lines) + "\n"


# -- nanobot and agent-swarm


@command(
    "nanobot doctor",
    Option("--config", help="nanobot's config; ~/.nanobot/config.json by default", complete="files"),
    about="Looks at which nanobot is installed beside this Postroom, whether the channel and its tools are there,"
    " asks nanobot itself, checks the section channels.mailbox, and shows whether a gateway of this agent is up. Provider and"
    " model are nanobot's own matter: `nanobot agent -m hello` tries them. Needs no --as and no room.",
    examples=(("postroom nanobot doctor", "how is it"),),
    json="healthy worst findings",
    looks=True,
)
def run_nanobot_doctor(context: Context) -> Answer:
    context.refuse_room()
    found = diagnose(context.get("config"))
    view = partial(health.diagnosis, healthy="nanobot finds the channel.", command="postroom nanobot doctor")
    return Answer(context.name, health.diagnosed(found), view, code=health.end_of(found))


DEFAULT_FOLDER = "shared"  # from which the programs of agent-swarm import a file, which this command writes


@command(
    "swarm install",
    Option("FOLDER", help="where they import it from; shared by default", complete="files"),
    Option("--force", help="replace a file that Postroom did not write", kind="flag"),
    about="Writes agent_mailbox.py, which hands on all names of postroom.swarm, and a line in __init__.py beside it, so"
    " that both `from shared.agent_mailbox import send_message` and `from shared import send_message` work. What the"
    " project wrote into __init__.py stays. Mail stays where it is, in workspace/mailboxes, and in its format. An"
    " agent_mailbox.py that Postroom did not write is left as it is. Needs no --as and no room.",
    examples=(("postroom swarm install", "writes shared/agent_mailbox.py"),),
    json="path outcome package export",
    looks=True,
)
def run_swarm_install(context: Context) -> Answer:
    context.refuse_room()
    folder = Path(context.get("folder", DEFAULT_FOLDER))
    path = folder / swarm_files.FILE
    before = own_file.held(str(path), swarm_files.MARK)
    if before == "" and "force" not in context.values:
        raise CannotCreate(f"{path} is there already and not ours", field="FOLDER", hint="--force replaces it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own_file.write(str(path), before, swarm_files.CONTENT, 0o644)
        package, exported = swarm_files.export(folder)
    except OSError as broken:
        raise cannot_write(str(folder), broken, "FOLDER") from None
    data = {
        "path": printable(str(path)),
        "outcome": own_file.outcome(before, swarm_files.CONTENT),
        "package": printable(str(package)),
        "export": exported,
    }
    return Answer(context.name, data, _swarm_view)


def _swarm_view(_screen: Screen, data: Mapping[str, Any]) -> str:
    files = ((data["outcome"], data["path"]), (data["export"], data["package"]))
    return "".join(
        f"{outcome.capitalize()}: {one_line(path)}\n" for outcome, path in files if outcome != "skipped"
    )

"""The commands for a chipset's state folder: its hooks, nudges and handoff notes, and the witness that watches them."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..chipset import STATE, Chipset, Witness
from ..chipset.folder import chosen
from ..chipset.notes import HEALTH_CHECK, RESPONSE
from ..errors import Invalid, PostroomError
from ..hosts.quick import state_of
from .answer import printable
from .command import EVERYWHERE, Option, command
from .errors import NOTHING, NoInput
from .health import pause_of
from .output import one_line
from .parse import seconds
from .text import body_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..chipset import Patience
    from .answer import Answer, Screen
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


def _of_chipset(
    name: str,
    *options: Option,
    do: Callable[[Chipset, Context], dict[str, Any]],
    json: str = "hook",
    makes: bool = False,
    needed: bool = True,
    **declared: Any,
) -> None:
    """Declare a command on a state folder: it does one thing there, and answers with what that returns.

    A folder that is `needed` must be there, and few commands make
    one. A nudge that does not come is nothing, as mail that does not come.
    """

    def run(context: Context) -> Answer:
        with _chipset(context, needed=needed) as chipset:
            found = do(chipset, context)
        data = {one: _fields(value) for one, value in found.items()}
        is_vain = json.startswith("nudge") and data["nudge"] is None
        return context.shown(data, _shown, code=NOTHING if is_vain else 0)

    command(f"chipset {name}", *options, _STATE, function=run, json=json, looks=not makes, **declared)


def _fields(value: Any) -> Any:
    """Return a hook, a nudge or a note as its file has it; of a damaged file, what is wrong."""
    if isinstance(value, (list, tuple)):
        return [_fields(one) for one in value]
    if isinstance(value, PostroomError):
        return value.message
    if value is None or isinstance(value, str):
        return value
    named = {"filename": value.filename} if hasattr(value, "filename") else {}
    return value.to_dict() | named


def _text(context: Context) -> str:
    """Return the text of --body, or an empty one."""
    return body_text(context, optional=True) or ""


# -- looking

_of_chipset(
    "check",
    do=lambda chipset, context: {
        "hook": chipset.hooks.get(context.me),
        "nudge": chipset.nudges.unhandled(context.me),
        "note": chipset.notes.latest(context.me),
    },
    about="For an agent that starts or polls: work on your hook comes before anything else. Changes nothing.",
    examples=(
        ("postroom chipset check --as polecat-alpha", "what is wanted of me?"),
        ("postroom chipset check --as polecat-alpha --json", "for a program"),
    ),
    json="hook nudge note",
    needed=False,
)
_of_chipset(
    "hooks",
    do=lambda chipset, _: dict(zip(("hooks", "damaged"), chipset.hooks.all(), strict=True)),
    examples=(("postroom chipset hooks", "who has what"),),
    json="hooks damaged",
    needed=False,
)


def _notes(chipset: Chipset, context: Context) -> dict[str, Any]:
    agent = context.get("agent") or context.me
    return {"notes": chipset.notes.all(agent), "damaged": chipset.notes.broken(agent)}


_of_chipset(
    "notes",
    Option("AGENT", help="whose; yours by default", complete="agents"),
    do=_notes,
    examples=(("postroom chipset notes polecat-beta --as mayor", "what it left behind"),),
    json="notes damaged",
    needed=False,
)

# -- the mayor


def _by_mayor(step: str, *names: str, text: bool = False) -> Callable[[Chipset, Context], dict[str, Any]]:
    """Return what a step of the mayor does to an agent's hook, with these arguments and the text."""

    def do(chipset: Chipset, context: Context) -> dict[str, Any]:
        args = [context.get(name, "") for name in names] + ([_text(context)] if text else [])
        return {"hook": getattr(chipset.mayor(context.me), step)(*args)}

    return do


_of_chipset(
    "dispatch",
    AGENT,
    Option("BEAD", help="the id of the work item", required=True),
    Option("--title", help="one line", metavar="TEXT"),
    TEXT,
    do=_by_mayor("dispatch", "agent", "bead", "title", text=True),
    by="mayor",
    about=f"Only an agent that is a mayor or a dispatcher by its name may do this.{_MAYOR} If the command is cut off before"
    " the letter is sent, chipset remind sends it.",
    examples=(
        (
            "postroom chipset dispatch polecat-delta gt-abc12 --title 'Auth middleware' --body 'As in the plan.'",
            "hand out work",
        ),
    ),
    makes=True,
    needed=False,
)
_of_chipset(
    "remind",
    AGENT,
    TEXT,
    do=_by_mayor("remind", "agent", text=True),
    by="mayor",
    about=f"It is never sent twice: pass the same --body as before.{_MAYOR}",
    examples=(("postroom chipset remind polecat-alpha --body 'As in the plan.'", "after a crash"),),
)
_of_chipset(
    "accept",
    AGENT,
    do=_by_mayor("accept", "agent"),
    by="mayor",
    about=f"After you checked the work.{_MAYOR}",
    examples=(("postroom chipset accept polecat-gamma", "checked"),),
)
_of_chipset(
    "reassign",
    AGENT,
    Option("TO", help="the agent that gets it", required=True, complete="agents"),
    TEXT,
    do=_by_mayor("reassign", "agent", "to", text=True),
    by="mayor",
    about=f"That is a restart: at most three for an item, 60 seconds apart; then a human is notified.{_MAYOR}",
    examples=(("postroom chipset reassign polecat-alpha polecat-delta", "polecat-alpha does not answer"),),
)
_of_chipset(
    "clear",
    AGENT,
    do=lambda chipset, context: {"hook": chipset.hooks.clear(context.get("agent"), by=context.me)},
    by="mayor",
    about=f"The file stays, with an empty hook. A file that cannot be read is set aside first, and kept.{_MAYOR}",
    examples=(("postroom chipset clear polecat-alpha", "never mind"),),
)

# -- the agent that owns a hook

_of_chipset(
    "activate",
    do=lambda chipset, context: {"hook": chipset.hooks.activate(context.me)},
    examples=(("postroom chipset activate --as polecat-alpha", "pending becomes active"),),
)
_of_chipset(
    "touch",
    do=lambda chipset, context: {"hook": chipset.hooks.touch(context.me)},
    about="Run it now and then while you work: the witness nudges an agent that shows no activity.",
    examples=(("postroom chipset touch --as polecat-beta", "still here"),),
)
_of_chipset(
    "report",
    TEXT,
    Option("--to", help="who gets the report; mayor by default", metavar="NAME", complete="agents"),
    do=lambda chipset, context: {
        "hook": chipset.report(context.me, _text(context), **context.passed_options("to"))
    },
    about="Run again after a crash, it completes what was left undone, and the report is sent once.",
    examples=(("postroom chipset report --as polecat-beta --body 'On branch auth.'", "done"),),
)
_NOTE = ("bead", "summary", "remaining", "branch", "last_commit", "session_outgoing")
_of_chipset(
    "note",
    Option("--bead", help="the work item", required=True, metavar="BEAD"),
    Option("--summary", help="where it stands", required=True, metavar="TEXT"),
    Option("--remaining", help="what is left to do", many=True, metavar="TEXT"),
    Option("--branch", help="where the work is", metavar="NAME"),
    Option("--last-commit", help="the last commit there", metavar="COMMIT"),
    Option("--session", name="session_outgoing", help="the session that ends", metavar="ID"),
    do=lambda chipset, context: {"note": chipset.notes.write(context.me, **context.passed_options(*_NOTE))},
    examples=(
        (
            "postroom chipset note --as polecat-beta --bead gt-1 --summary 'Half done.' --remaining tests --branch auth",
            "before a session ends",
        ),
    ),
    json="note",
    makes=True,
    needed=False,
)

# -- nudges


def _nudge(chipset: Chipset, context: Context) -> dict[str, Any]:
    to, type = context.get("agent"), context.get("type", HEALTH_CHECK)
    must_answer = "requires_response" in context.values
    nudge = chipset.nudges.send(context.me, to, type, _text(context), requires_response=must_answer)
    return {"nudge": nudge, "to": to}


_of_chipset(
    "nudge",
    Option("AGENT", help="the agent", required=True, complete="agents"),
    Option(
        "--type", help="what it is about; health_check by default", kind="word", choices=NUDGES, metavar="TYPE"
    ),
    TEXT,
    Option("--requires-response", help="an answer is wanted", kind="flag"),
    do=_nudge,
    examples=(
        (
            "postroom chipset nudge polecat-beta --as mayor --type sync_request --body 'Where are you?'",
            "a question",
        ),
    ),
    json="nudge to",
    makes=True,
    needed=False,
)


def _answered(chipset: Chipset, context: Context) -> dict[str, Any]:
    message, nudge = _text(context), chipset.nudges.unhandled(context.me)
    if nudge is None:
        return {"nudge": None, "to": None}
    return {"nudge": chipset.answer(context.me, nudge, message), "to": nudge.sender}


_of_chipset(
    "answer",
    TEXT,
    do=_answered,
    about="The answer is written to the slot of the agent that nudged you. The nudge counts as handled, and work in hand is touched."
    " What lies in your slot may itself be an answer to a nudge of yours: that is handled, not answered.",
    examples=(("postroom chipset answer --as polecat-beta --body 'At the tests.'", "I am here"),),
    json="nudge to",
)


def _handled(chipset: Chipset, context: Context) -> dict[str, Any]:
    nudge = chipset.nudges.unhandled(context.me)
    if nudge is not None:
        chipset.nudges.handle(context.me, nudge)
    return {"nudge": nudge}


_of_chipset(
    "handle",
    do=_handled,
    examples=(("postroom chipset handle --as polecat-beta", "understood"),),
    json="nudge",
)

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
    by="witness",
    looks=True,
)
def run_witness(context: Context) -> Iterator[Answer]:
    """Look after the agents until stopped; answer at first, and whenever something happened."""
    pause, patience = pause_of(context, 5.0, SLOWEST), _patience(context)
    with _chipset(context, needed=False) as chipset:
        witness = Witness(chipset, name=context.me, patience=patience, **context.passed_options("mayor", "human"))
        last, seen = None, witness.look()
        while True:
            if last is None or seen.has_news_after(last):
                yield context.shown({"at": chipset.clock.now().wall, **asdict(seen)}, _round)
            if context.get("once"):
                return
            time.sleep(pause)
            last, seen = seen, witness.look()


@contextmanager
def _chipset(context: Context, *, needed: bool) -> Iterator[Chipset]:
    """Open the state folder. Errors name the options that were typed."""
    context.check_named_room()
    folder = state_of(context.settings.store)
    state = os.path.expanduser(context.get("state", folder or STATE))  # noqa: PTH111 - text as it was typed
    if ("state" in context.values or needed) and not os.path.isdir(state):  # noqa: PTH112
        hint = "postroom chipset dispatch makes one, or give --state FOLDER" if needed else None
        raise NoInput(f"there is no state folder {printable(state)}", field="--state", hint=hint)
    elsewhere = "room" in context.values and ("state" in context.values or not folder)
    durable = context.settings.durability == "power"
    with Chipset(state, room=context.room if elsewhere else None, durable=durable) as chipset:
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


def _patience(context: Context) -> Patience:
    answers = {name: seconds(span, ANSWER_OF) for name, span in context.get("answer_of", ())}
    try:
        return chosen(**context.passed_options("stall_after", "nudge_every", "answer_within"), answers=answers)
    except Invalid as wrong:
        option = "--answer-of" if wrong.field == "answers" else f"--{(wrong.field or '').replace('_', '-')}"
        raise Invalid(wrong.message, field=option, hint=wrong.hint) from None


# -- views: a line for each hook, nudge, note and report

_REPORTS = {
    "nudged": "Nudged {}.",
    "escalated": "Notified the mayor of {}, which does not answer.",
    "human": "Notified a human of {}, which was started too often.",
    "damaged": "Cannot be read: {}",
    "failed": "Not looked after this time: {}",
}


def _shown(_screen: Screen, data: Mapping[str, Any]) -> str:
    lines = []
    for name, value in data.items():
        of_kind = {"hook": _hook_line, "nudge": _nudge_line, "note": _note_line}.get(name.removesuffix("s"))
        found = value if isinstance(value, list) else [value] if value else []
        if of_kind:
            lines += [of_kind(one, data) for one in found]
    return "".join(f"{one_line(line)}\n" for line in [*lines, *_reports(data)]) or "Nothing.\n"


def _round(_screen: Screen, data: Mapping[str, Any]) -> str:
    first = f"{len(data['watched'])} at work, {len(data['stalled'])} stalled."
    return "".join(f"{one_line(line)}\n" for line in [first, *_reports(data)])


def _reports(data: Mapping[str, Any]) -> list[str]:
    return [words.format(one) for name, words in _REPORTS.items() for one in data.get(name, ())]


def _hook_line(hook: Mapping[str, Any], _data: Mapping[str, Any]) -> str:
    item = hook["work_item"] or {}
    about = f", {item['bead_id']}" if item else ""
    title = f" ({item['title']})" if item.get("title") else ""
    since = f", last activity {hook['last_activity']}" if hook["last_activity"] else ""
    return f"{hook['agent_id']}: {hook['status']}{about}{title}{since}"


def _nudge_line(nudge: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    what, type = ("Answer", "") if nudge["type"] == RESPONSE else ("Nudge", f", {nudge['type']}")
    who = f"to {data['to']}" if data.get("to") else f"from {nudge['from']}"
    message = f": {nudge['message']}" if nudge["message"] else ""
    wants = ", wants an answer" if nudge["requires_response"] else ""
    return f"{what} {who}{type}{wants}{message}"


def _note_line(note: Mapping[str, Any], _data: Mapping[str, Any]) -> str:
    left = f"; left to do: {', '.join(note['remaining'])}" if note["remaining"] else ""
    where = f" (branch {note['branch']})" if note["branch"] else ""
    return f"Note on {note['bead']}{where}: {note['summary']}{left}"

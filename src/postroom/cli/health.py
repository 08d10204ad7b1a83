"""The commands about the health of a room: doctor, stats, top, board and trace, with their views."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.stats import MailboxStats, RoomStats
from ..errors import BadStore, Invalid
from ..formats.plain import plain
from ..maintenance import doctor
from ..model.delivery import State
from ..model.names import AT
from ..model.report import Level
from ..settings import chosen_settings
from .answer import printable
from .command import WHOLE, Option, command
from .errors import Misconfigured
from .output import ago, cut, listing, moment, one_line, page, painted, record, span, state_word, wrapped

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ..model.report import AgentFlow, Diagnosis, Finding, Flow
    from .answer import Answer, Screen
    from .context import Context
    from .output import Column


Data = Mapping[str, Any]
# Level of a finding -> the title above it, its mark, and the colour of that.
_GROUPS = {
    "ok": ("Fine", "✓", "green"),
    "note": ("Worth knowing", "·", "cyan"),
    "repaired": ("Mended", "+", "green"),
    "warning": ("Warnings", "!", "yellow"),
    "error": ("Errors", "✗", "red"),
}
_IN_STATE = {"unread": "in inboxes"}  # read or not: "unread" would mean another number
_STATES = {"dead": "red", "claimed": "cyan", "done": "green"}
_RINGS = {"rung": "rung", "failed": "ring failed", "dead": "ring given up"}
_OLD, _VERY_OLD = 60.0, 600.0  # seconds after which a waiting letter is shown in yellow, in red

# -- the doctor


def diagnosis(
    screen: Screen, data: Data, *, healthy: str = "The room is healthy.", command: str = "postroom doctor"
) -> str:
    """Show the findings of the doctor, the worst last, where it is seen first."""
    lines: list[str] = []
    groups: dict[str, list[Data]] = {}
    for level, (title, mark, colour) in _GROUPS.items():
        groups[level] = [
            one for one in data["findings"] if level == ("repaired" if one["repaired"] else one["level"])
        ]
        if groups[level]:
            lines += [painted(screen, title, "bold") if screen.tables else f"## {title}", ""]
            lines += [line for one in groups[level] for line in _finding(screen, one, mark, colour)]
            lines.append("")
    return "\n".join([*lines, _verdict(screen, data, groups, healthy, command)]) + "\n"


def _finding(screen: Screen, found: Data, mark: str, colour: str) -> list[str]:
    first, to_do = one_line(f"{found['check']}: {found['what']}"), one_line(found["hint"])
    if not screen.tables:
        return [f"- {mark} {first}{'; → ' if to_do else ''}{to_do}"]
    head, *rest = wrapped(first, screen.width - 4)
    below = [painted(screen, f"    {line}", "dim") for line in wrapped(f"→ {to_do}", screen.width - 4)]
    return [
        f"  {painted(screen, mark, colour)} {head}",
        *(f"    {line}" for line in rest),
        *(below if to_do else ()),
    ]


def _verdict(screen: Screen, data: Data, groups: Mapping[str, list[Data]], healthy: str, command: str) -> str:
    if data["healthy"]:
        is_new = [found["check"] for found in data["findings"]] == ["room"]  # there is none yet
        return painted(screen, "There is nothing to examine." if is_new else healthy, "green")
    counts = [f"{len(groups[level])} {level}{'s' * (len(groups[level]) > 1)}"
              for level in ("error", "warning") if groups[level]]  # fmt: skip
    if any(found["check"] == "salvage" for found in groups["note"]):
        advice = "Nothing more can be mended in its place; salvage says what could be read, and what to do."
    elif any("--repair" in found["hint"] for found in data["findings"]):
        advice = f"{command} --repair mends what is safe."
    else:
        advice = "Each says what to do."
    left = painted(screen, f"{' and '.join(counts)} left.", "red" if groups["error"] else "yellow")
    return "\n".join([left, *wrapped(advice, screen.width)])


# -- numbers


def _by_priority(name: str) -> Column:
    """Return a column with a count of letters, and of each priority among them."""

    def text(_screen: Screen, data: Data) -> str:
        unread = data[name]
        priorities = ("urgent", "high", "normal", "low")
        found = ", ".join(f"{unread[one]:,} {one}" for one in priorities if unread.get(one))
        total = f"{sum(unread.values()):,}"
        return f"{total}: {found}" if found else total

    return text


def _deliveries(_screen: Screen, room: Data) -> str:
    states = ", ".join(f"{count:,} {_IN_STATE.get(name, name)}" for name, count in room["states"].items() if count)
    return f"{room['deliveries']:,}" + (f": {states}" if states else "")


def _age(name: str) -> Column:
    return lambda _, one: span(one[name])


_tally = record(
    {
        "Mailbox": "mailbox",
        "Backlog": "backlog",
        "Never read": _by_priority("unread"),
        "Read, not settled": "seen",
        "Claimed": "claimed",
        "Not due yet": "queued",
        "Dead": "dead",
        "Oldest never read": "oldest_unread_at",
        "Oldest read, not settled": "oldest_seen_at",
        "Oldest claimed": "oldest_claimed_at",
    },
    "mailbox",
)
_room = page(
    record(
        {
            "Letters": "letters",
            "Deliveries": _deliveries,
            "Never read": _by_priority("unread"),
            "Oldest never read": "oldest_unread_at",
            "Read, not settled": lambda _, room: (
                f"{room['states'].get('unread', 0) - sum(room['unread'].values()):,}"
            ),
            "Agents": "agents",
            "Damaged letters": lambda _, room: f"{room['quarantined']:,}" if room["quarantined"] else "",
        }
    ),
    listing(
        "mailboxes",
        {
            "MAILBOX": "mailbox",
            "BACKLOG": "backlog",
            "NEVER READ": "total_unread",
            "CLAIMED": "claimed",
            "DEAD": "dead",
            "OLDEST": lambda screen, t: ago(
                min(filter(None, (t["oldest_unread_at"], t["oldest_seen_at"])), default=None), screen.now
            ),
        },
    ),
    # How many alerts led to a letter being shown and acknowledged, and how soon.
    listing(
        "rates",
        {
            "ALERTED BY": "name",
            "LETTERS": "letters",
            "RUNG": "rung",
            "SHOWN": "shown",
            "ACKED": "acknowledged",
            "RUNG TO SHOWN": _age("median_to_shown"),
            "SHOWN TO ACKED": _age("median_to_acknowledged"),
        },
        drop=("SHOWN TO ACKED", "RUNG TO SHOWN", "LETTERS"),
    ),
)


def stats(screen: Screen, data: Data) -> str:
    if data["mailbox"] is not None:
        return _tally(screen, data)
    room = data["room"]
    return _room(screen, {**room, "mailboxes": sorted(room["mailboxes"], key=lambda tally: -tally["backlog"])})


# -- flow


def _rate(name: str) -> Column:
    return lambda _, data: f"{data[name]:,.1f} per second" if data["seconds"] else ""


def _oldest(agent: Data) -> float | None:
    return max((age for age in (agent["oldest_unread"], agent["oldest_seen"]) if age is not None), default=None)


_flow_columns: dict[str, Column] = {
    "MAILBOX": "mailbox",
    "BACKLOG": "backlog",
    "NEVER READ": "unread",
    "CLAIMED": "claimed",
    "DEAD": "dead",
    "DONE": "settled",
    "OLDEST": lambda _, agent: span(_oldest(agent)),
    "HELD FOR": _age("oldest_claimed"),
    "TO DONE": _age("median_to_done"),
}


def flow(screen: Screen, data: Data) -> str:
    """Show the flow of mail, for one frame of the live view."""
    ages = [age for a in data["agents"] for age in (_oldest(a), a["oldest_claimed"], a["median_to_done"])]
    paint = {span(age): _age_colour(age) for age in ages}
    drop = ("DEAD", "CLAIMED", "DONE", "NEVER READ", "HELD FOR", "TO DONE")
    head = record(
        {
            "Sent": _rate("sent_per_second"),
            "Done": _rate("settled_per_second"),
            "Died": lambda _, data: f"{data['died']:,}" if data["died"] else "",
            "Backlog": "backlog",
            "Time to done": _age("median_to_done"),
        }
    )
    rows = listing("agents", _flow_columns, "No mail is open.", paint=paint, drop=drop)
    return head(screen, data) + ("\n" if data["agents"] else "") + rows(screen, data)


def _age_colour(age: float | None) -> str:
    return "" if age is None or age < _OLD else "yellow" if age < _VERY_OLD else "red"


# -- who waits for whom, and what is stuck


def _boarded(name: str, title: str, columns: Mapping[str, Column]) -> Callable[[Screen, Data], str]:
    """Return the view of one list of the board, under its title; nothing where it has no entries."""
    rows = listing(name, columns)

    def view(screen: Screen, data: Data) -> str:
        more = f"And {data['more'][name]} more.\n" if data["more"][name] else ""
        return f"{title}\n{rows(screen, data)}{more}" if data[name] else ""

    return view


_ABOUT: dict[str, Column] = {"ABOUT": "subject", "ID": lambda _, one: one["id"]}
_board = page(
    _boarded(
        "waits",
        "Who waits for whom",
        {
            "SINCE": "since",
            "WHAT": "what",
            "WHO": "asker",
            "FOR": "waits_for",
            "ABOUT": lambda _, one: one["subject"] or one["text"],
            "ID": _ABOUT["ID"],
        },
    ),
    _boarded(
        "deadlines",
        "Deadlines",
        {"DUE": "due_at", "STATE": "state", "HOLDER": "receiver", "GIVER": "giver", **_ABOUT},
    ),
    _boarded(
        "stuck",
        "Stuck claims",
        {
            "ID": _ABOUT["ID"],
            "MAILBOX": "mailbox",
            "HOLDER": "holder",
            "WHY": lambda _, one: "; ".join(one["why"]),
        },
    ),
    _boarded("dead", "Dead letters", {"MAILBOX": "mailbox", "DEAD": "dead"}),
    _boarded(
        "alerts",
        "Alerts that were given up",
        {"WHEN": "at", "MAILBOX": "mailbox", "WAY": "way", "WHY": "why"},
    ),
    _boarded("links", "Links that are down", {"SYSTEM": "system", "SINCE": "since", "WHY": "reason"}),
)


def board(screen: Screen, data: Data) -> str:
    return _board(screen, data) or "Nobody waits, and nothing is stuck.\n"


command(
    "board",
    WHOLE,
    verb="board.Board",
    view=board,
    of_room=True,
    about="The board of the whole room; with --as or POSTROOM_AGENT, that of one agent. It marks nothing as read and"
    " writes nothing.",
    examples=(
        ("postroom board", "the whole room"),
        ("postroom board --as coder --json", "what is about one agent"),
    ),
    looks=True,
)


# -- one letter


def _when(screen: Screen, time: datetime | None) -> str:
    """Return how long ago a time was, and the time itself."""
    return f"{ago(time, screen.now)} ({moment(time)})" if time else ""


_head = record(
    {
        "Id": lambda _, letter: letter["id"],
        "From": "sender",
        "Sent": lambda screen, letter: _when(screen, letter["created_at"]),
        "Expires": lambda screen, letter: _when(screen, letter["expires_at"]),
        "Due": lambda screen, letter: ", ".join(
            dict.fromkeys(_when(screen, stop["due_at"]) for stop in letter["stops"] if stop["due_at"])
        ),
        "Subject": "subject",
        "Number": lambda _, letter: str(letter["number"]),
    }
)
_parts = page(
    listing(
        "stops",
        {
            "MAILBOX": "mailbox",
            "STATE": lambda _, stop: state_word(stop),
            "TRIES": "attempts",
            "CAME": "delivered_at",
            "READ": "read_at",
            "SETTLED": lambda screen, stop: ago(stop["acked_at"] or stop["dead_at"], screen.now),
            "HOLDER": "holder",
            "REASON": lambda _, stop: "" if stop["forwarded"] else stop["reason"] or "",
        },
        paint=_STATES,
        drop=("READ", "TRIES", "CAME", "HOLDER", "SETTLED"),
    ),
    listing(
        "events",
        {"MAILBOX": "mailbox", "WHEN": "at", "WHAT": "what", "HOW": "how"},
        paint={_RINGS["failed"]: "yellow", _RINGS["dead"]: "red", "done": "green"},
    ),
    listing(
        "tries",
        {"MAILBOX": "mailbox", "WHEN": "at", "HOLDER": "holder", "REASON": "reason"},
        drop=("HOLDER",),
    ),
    listing(
        "others",
        {
            "ID": lambda _, other: other["id"],
            "WHAT": "what",
            "FROM": "sender",
            "ABOUT": lambda _, other: other["subject"] or other["text"].strip().partition("\n")[0],
        },
        paint={"bounce": "red"},
    ),
)


def trace(screen: Screen, data: Data) -> str:
    """Show a letter's stops, the alerts for it and what followed them, its tries, and what was sent about it."""
    letter = data["letter"]
    kinds = (("answer", "replies"), ("passed on", "relays"), ("bounce", "bounces"))
    parts = {
        "stops": data["stops"],
        "events": [
            {"mailbox": stop["mailbox"], "at": at, "what": what, "how": how}
            for stop in data["stops"]
            if stop["rings"] or stop["sights"] or stop["done_at"]
            for at, what, how in sorted(_events(stop, letter["created_at"]), key=lambda event: event[0])
        ],
        "tries": [
            {**attempt, "mailbox": stop["mailbox"]} for stop in data["stops"] for attempt in stop["history"]
        ],
        "others": [{**other, "what": what} for what, name in kinds for other in data[name]],
    }
    return (
        _head(screen, {**letter, "stops": data["stops"], "number": data["number"]}) + "\n" + _parts(screen, parts)
    )


def _events(stop: Data, stored: datetime) -> Iterator[tuple[datetime, str, str]]:
    yield stored, "stored", ""
    for ring in stop["rings"]:
        yield ring["at"], _RINGS[ring["outcome"]], f"{ring['way']}: {ring['why']}" if ring["why"] else ring["way"]
    for sight in stop["sights"]:
        yield sight["at"], "shown", f"{sight['host']}, {sight['where']}" if sight["where"] else sight["host"]
    if stop["acked_at"]:
        yield stop["acked_at"], "acknowledged", ""
    if stop["done_at"]:
        yield stop["done_at"], "done", stop["task"]


# -- the live view: one frame after the other, on a screen of its own, or as JSON lines

FASTEST, SLOWEST = 0.1, 3600.0  # seconds between two frames

_ORDER: dict[str, Callable[[AgentFlow], float]] = {
    "backlog": lambda agent: agent.backlog,
    "oldest": lambda agent: max(agent.oldest_unread or 0.0, agent.oldest_seen or 0.0, agent.oldest_claimed or 0.0),
    "slow": lambda agent: max(agent.median_to_done or 0.0, agent.oldest_claimed or 0.0),
}


@command(
    "top",
    Option("--every", help="look so often, such as 5s; 1s by default", kind="seconds", metavar="SPAN"),
    Option(
        "--sort",
        help="what stands first: the largest backlog, the oldest open letter, the slowest",
        kind="word",
        choices=("backlog", "oldest", "slow"),
    ),
    Option("--once", help="one look, then end", kind="flag"),
    about="On a terminal it stays until q or Ctrl-C; elsewhere it is one look. A first look knows no rates yet."
    " With --json, one document on each line, until it is stopped. Counts, and reads no letters: cheap in a room"
    " with a million of them.",
    examples=(("postroom top --once", "one look"), ("postroom top --once --json --sort slow", "for a program")),
    json="at seconds sent settled died sent_per_second settled_per_second backlog median_to_done agents",
    looks=True,
)
def run_top(context: Context) -> Iterator[Answer]:
    """Show the flow of mail again and again."""
    pause = pause_of(context, 1.0, SLOWEST)
    room = context.room
    live = not context.get("once") and not context.screen.json and sys.stdout.isatty()
    look = room.flow()
    if live:
        from .screen import LiveScreen  # noqa: PLC0415 - for terminals alone

        with LiveScreen() as screen:
            while True:
                screen.draw(partial(_frame, context, look, pause))
                if not screen.sleep(pause):
                    return
                look = room.flow(look)
    yield context.shown(_shape(context, look), flow)
    while context.screen.json and not context.get("once"):
        time.sleep(pause)
        look = room.flow(look)
        yield context.shown(_shape(context, look), flow)


def pause_of(context: Context, usual: float, slowest: float) -> float:
    """Return how long to pause between two looks, as --every wants it."""
    pause: float = context.get("every", usual)
    if not FASTEST <= pause <= slowest or not math.isfinite(pause):
        raise Invalid(
            f"{pause:g} seconds is out of range",
            field="--every",
            hint=f"between {FASTEST:g} and {slowest:g} seconds",
        )
    return pause


def _shape(context: Context, look: Flow) -> dict[str, Any]:
    """Return a look as JSON, with its rates, and the agents in the order that was asked for."""
    order = _ORDER[context.get("sort", "backlog")]
    agents = sorted(look.agents, key=lambda agent: (-order(agent), agent.mailbox))
    rates = {name: getattr(look, name) for name in ("sent_per_second", "settled_per_second")}
    shown = plain(look) | rates | {"agents": plain(agents)}
    return {name: value for name, value in shown.items() if name not in {"cursor", "uptime", "boot"}}


def _frame(context: Context, look: Flow, pause: float, size: os.terminal_size) -> list[str]:
    """Return the lines of one frame; no more than fit on the screen."""
    screen = context.screen
    screen.width, screen.now = size.columns, look.at
    title = f"every {pause:g} s, q ends it  {one_line(printable(context.room.settings.store))}"
    return [painted(screen, cut(title, screen.width), "bold"), *flow(screen, _shape(context, look)).splitlines()][
        : size.lines
    ]


# -- commands

_EXIT_CODES = {Level.WARNING: 1, Level.ERROR: 70}

# A hint in terms of the library -> the same for the command line.
_IN_A_SHELL = {
    "repair=True or room.sweep()": "postroom doctor --repair or postroom rooms janitor",
    "repair=True": "postroom doctor --repair",
    "full=True": "--full",
    "with dead(), revive or purge": "with postroom dead, then dead revive or dead purge",
    'durability="power"': "the setting durability=power",
}


@command(
    "doctor",
    Option("--repair", help="repair what is safe to repair", kind="flag"),
    Option("--full", help="look at every index too; takes longer", kind="flag"),
    about="Looks at the room's files, their place and their disk, at every letter, at leases, clock and backlog,"
    " writes and reads a record of its own, and shows which durability is in force and what that means. Works on a"
    " room that does not open, and makes none where there is none.",
    examples=(
        ("postroom doctor", "how is it"),
        ("postroom doctor --repair", "and mend it"),
        ("postroom doctor --full --json", "all of it, for a program"),
    ),
    json="healthy worst durability findings",
    looks=True,
)
def run_doctor(context: Context) -> Answer:
    with suppress(Misconfigured, BadStore):  # the doctor reports those in more detail
        context.check_named_room()
    store, settings = context.get("room"), dict(context.get("set", ()))
    options = {"repair": bool(context.get("repair")), "full": bool(context.get("full"))}
    with context.progress() as progress:
        try:
            found = doctor(store, **settings, **options, progress=progress.tell)
        except BadStore as refused:
            refused.field = "--room" if store else refused.field
            raise
    durability = None
    with suppress(Invalid):  # the room cannot be opened; the findings say so
        durability = chosen_settings(store, settings).durability
    return context.shown(diagnosed(found) | {"durability": durability}, diagnosis, code=end_of(found))


def diagnosed(found: Diagnosis) -> dict[str, Any]:
    """Return the findings of a doctor as JSON, their hints in words of the command line."""
    return {
        "healthy": found.is_healthy,
        "worst": str(found.worst),
        "findings": [_plain_finding(finding) for finding in found.findings],
    }


def end_of(found: Diagnosis) -> int:
    return _EXIT_CODES.get(found.worst, 0)


def _plain_finding(finding: Finding) -> dict[str, Any]:
    what, hint = printable(finding.what), printable(finding.hint)
    for theirs, ours in _IN_A_SHELL.items():
        what, hint = what.replace(theirs, ours), hint.replace(theirs, ours)
    return {**plain(finding), "what": what, "hint": hint}


@command(
    "stats",
    WHOLE,
    of_room=True,
    about="With --as or POSTROOM_AGENT, your own mailbox; without, or with --all, the room.",
    examples=(("postroom stats", "the room"), ("postroom stats --as researcher", "one mailbox")),
    json="room mailbox",
    looks=True,
)
def run_stats(context: Context) -> Answer:
    whole = context.is_of_room
    found = context.perform(RoomStats if whole else MailboxStats)
    return context.shown({"room": found if whole else None, "mailbox": None if whole else found}, stats)


@command(
    "trace",
    WHOLE,
    verb="stats.GetTrace",
    places=("id",),
    view=trace,
    of_room=True,
    about="With --as or POSTROOM_AGENT, it shows what that agent may see: all of a letter that it sent, and its own"
    " part of one that it received. Without these, or with --all, it shows everything. Alerts are listed too, with their times: stored, rung (a hint),"
    " shown, acknowledged, done.",
    examples=(("postroom trace m-2", "all of it"), ("postroom trace m-2 --as coder", "as its sender sees it")),
    looks=True,
)
def run_trace(context: Context) -> Answer:
    answer = context.answer()
    for stop in answer.data["stops"]:
        if stop["state"] == State.QUEUED and AT in stop["mailbox"] and not (stop["reason"] or stop["due_at"]):
            from .peers import why_it_waits  # noqa: PLC0415 - few letters go to other systems

            stop["reason"] = why_it_waits(context, stop["mailbox"])
    return answer

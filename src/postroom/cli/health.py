"""The commands about the health of a room: doctor, stats, top and trace, with their views."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..errors import BadStore, Invalid
from ..formats.plain import plain
from ..maintenance import doctor
from ..model.codec import to_plain
from ..model.delivery import State
from ..model.names import AT
from ..model.report import Level
from ..room import chosen_settings
from .answer import Answer
from .command import Option, command, declare
from .errors import Misconfigured
from .options import WHOLE
from .output import Progress, ago, cut, facts, moment, one_line, painted, sayable, state_word, table, wrapped

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from ..model.report import AgentFlow, Diagnosis, Finding, Flow
    from .answer import Screen
    from .context import Context


Data = Mapping[str, Any]
_MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "cyan"), "ok": ("✓", "green")}
_GROUPS = (
    ("ok", "Fine"),
    ("note", "Worth knowing"),
    ("repaired", "Mended"),
    ("warning", "Warnings"),
    ("error", "Errors"),
)
_IN_STATE = {"unread": "in inboxes"}  # read or not: "unread" would mean another number
_STATES = {"dead": "red", "claimed": "cyan", "done": "green"}
_RINGS = {"rung": "rung", "failed": "ring failed", "dead": "ring given up"}
_OLD, _VERY_OLD = 60.0, 600.0  # seconds after which a waiting letter is shown in yellow, in red

# -- the doctor


def diagnosis(
    screen: Screen, data: Data, *, healthy: str = "The room is healthy.", command: str = "postroom doctor"
) -> str:
    """Show the findings of the doctor, the worst last, where it is seen first."""
    groups: dict[str, list[Data]] = {}
    for found in data["findings"]:
        groups.setdefault("repaired" if found["repaired"] else found["level"], []).append(found)
    lines = []
    for level, title in _GROUPS:
        if level in groups:
            lines += [painted(screen, title, "bold") if screen.tables else f"## {title}", ""]
            lines += [line for found in groups[level] for line in _finding(screen, found)]
            lines.append("")
    return "\n".join([*lines, _verdict(screen, data, groups, healthy, command)]) + "\n"


def _finding(screen: Screen, found: Data) -> Iterator[str]:
    mark, colour = ("+", "green") if found["repaired"] else _MARKS[found["level"]]
    texts = [found["what"], *(f"→ {line}" for line in (found["hint"],) if line)]
    if not screen.tables:
        yield f"- {mark} {found['check']}: {one_line('; '.join(texts))}"
        return
    indent = " " * 4
    first = f"{found['check']}: {one_line(texts[0])}"
    for number, line in enumerate(wrapped(first, screen.width - len(indent))):
        yield f"{indent}{line}" if number else f"  {painted(screen, mark, colour)} {line}"
    for line in wrapped(one_line(texts[1]), screen.width - len(indent)) if len(texts) > 1 else ():
        yield painted(screen, f"{indent}{line}", "dim")


def _verdict(screen: Screen, data: Data, groups: Mapping[str, list[Data]], healthy: str, command: str) -> str:
    if data["healthy"]:
        if [found["check"] for found in data["findings"]] == ["room"]:  # there is none yet
            healthy = "There is nothing to examine."
        return painted(screen, healthy, "green")
    counts = [f"{len(groups[level])} {level}{'s' * (len(groups[level]) > 1)}"
              for level in ("error", "warning") if level in groups]  # fmt: skip
    mendable = any("--repair" in found["hint"] for level in groups.values() for found in level)
    advice = f"{command} --repair mends what is safe." if mendable else "Each says what to do."
    if any(found["check"] == "salvage" for found in groups.get("note", ())):
        advice = "Nothing more can be mended in its place; salvage says what could be read, and what to do."
    left = painted(screen, f"{' and '.join(counts)} left.", "red" if "error" in groups else "yellow")
    return "\n".join([left, *wrapped(advice, screen.width)])


# -- numbers


def stats(screen: Screen, data: Data) -> str:
    if data["mailbox"] is not None:
        return _tally(screen, data["mailbox"])
    room = data["room"]
    states = ", ".join(
        f"{count:,} {_IN_STATE.get(state, state)}" for state, count in room["states"].items() if count
    )
    seen = room["states"].get("unread", 0) - sum(room["unread"].values())
    pairs = [
        ("Letters", f"{room['letters']:,}"),
        ("Deliveries", f"{room['deliveries']:,}" + (f": {states}" if states else "")),
        ("Never read", _by_priority(room["unread"])),
        ("Oldest never read", ago(room["oldest_unread_at"], screen.now)),
        ("Read, not settled", f"{seen:,}"),
        ("Agents", f"{room['agents']:,}"),
        ("Damaged letters", f"{room['quarantined']:,}" if room["quarantined"] else ""),
    ]
    rows = [
        (t["mailbox"], str(t["backlog"]), str(t["total_unread"]), str(t["claimed"]), str(t["dead"]),
         ago(_first(t["oldest_unread_at"], t["oldest_seen_at"]), screen.now))
        for t in sorted(room["mailboxes"], key=lambda tally: -tally["backlog"])
    ]  # fmt: skip
    titles = ("MAILBOX", "BACKLOG", "NEVER READ", "CLAIMED", "DEAD", "OLDEST")
    return (
        facts(screen, pairs) + ("\n" + table(screen, titles, rows) if rows else "") + _rates(screen, room["rates"])
    )


def _rates(screen: Screen, rates: Sequence[Data]) -> str:
    """Show how many alerts led to a letter being shown and acknowledged, and how soon."""
    rows = [
        (
            rate["name"],
            *(f"{rate[name]:,}" for name in ("letters", "rung", "shown", "acknowledged")),
            _seconds(rate["median_to_shown"]),
            _seconds(rate["median_to_acknowledged"]),
        )
        for rate in rates
    ]
    titles = ("TOLD BY", "LETTERS", "RUNG", "SHOWN", "ACKED", "RUNG TO SHOWN", "SHOWN TO ACKED")
    return "\n" + table(screen, titles, rows, drop=("SHOWN TO ACKED", "RUNG TO SHOWN", "LETTERS")) if rows else ""


def _first(*times: str | None) -> str | None:
    """Return the earliest of some times, None among them. Their texts have one shape, so they compare as text."""
    return min((time for time in times if time), default=None)


def _tally(screen: Screen, tally: Data) -> str:
    return facts(
        screen,
        [
            ("Mailbox", tally["mailbox"]),
            ("Backlog", f"{tally['backlog']:,}"),
            ("Never read", _by_priority(tally["unread"])),
            ("Read, not settled", f"{tally['seen']:,}"),
            ("Claimed", f"{tally['claimed']:,}"),
            ("Not due yet", f"{tally['queued']:,}"),
            ("Dead", f"{tally['dead']:,}"),
            ("Oldest never read", ago(tally["oldest_unread_at"], screen.now)),
            ("Oldest read, not settled", ago(tally["oldest_seen_at"], screen.now)),
            ("Oldest claimed", ago(tally["oldest_claimed_at"], screen.now)),
        ],
    )


def _by_priority(unread: Mapping[str, int]) -> str:
    text = ", ".join(
        f"{unread.get(name, 0):,} {name}" for name in ("urgent", "high", "normal", "low") if unread.get(name)
    )
    total = f"{sum(unread.values()):,}"
    return f"{total}: {text}" if text else total


# -- flow


def stats_title(screen: Screen, store: str, pause: float) -> str:
    text = f"every {pause:g} s, q ends it  {one_line(store)}"
    return painted(screen, cut(text, screen.width), "bold")


def flow(screen: Screen, data: Data) -> str:
    """Show the flow of mail, for one frame of the live view."""
    known = bool(data["seconds"])
    head = [
        ("Sent", f"{data['sent_per_second']:,.1f} per second" if known else ""),
        ("Done", f"{data['settled_per_second']:,.1f} per second" if known else ""),
        ("Died", f"{data['died']:,}" if data["died"] else ""),
        ("Backlog", f"{data['backlog']:,}"),
        ("Time to done", _seconds(data["median_to_done"])),
    ]
    if not data["agents"]:
        return facts(screen, head) + "No mail is open.\n"
    rows = [_agent(agent) for agent in data["agents"]]
    paint = {_seconds(age): _age_colour(age) for agent in data["agents"] for age in _ages(agent)}
    titles = ("MAILBOX", "BACKLOG", "NEVER READ", "CLAIMED", "DEAD", "DONE", "OLDEST", "HELD FOR", "TO DONE")
    drop = ("DEAD", "CLAIMED", "DONE", "NEVER READ", "HELD FOR", "TO DONE")
    shown = table(screen, titles, rows, paint, drop=drop)
    return facts(screen, head) + "\n" + shown


def _agent(agent: Data) -> list[str]:
    numbers = [f"{agent[name]:,}" for name in ("backlog", "unread", "claimed", "dead", "settled")]
    return [agent["mailbox"], *numbers, *(_seconds(age) for age in _ages(agent))]


def _ages(agent: Data) -> tuple[float | None, ...]:
    waits = [age for age in (agent["oldest_unread"], agent["oldest_seen"]) if age is not None]
    return max(waits, default=None), agent["oldest_claimed"], agent["median_to_done"]


def _age_colour(age: float | None) -> str:
    return "" if age is None or age < _OLD else "yellow" if age < _VERY_OLD else "red"


def _seconds(span: float | None) -> str:
    """Return a span of time in few letters."""
    if span is None:
        return ""
    for unit, size, most in (("ms", 0.001, 1000), ("s", 1, 100), ("min", 60, 100), ("h", 3600, 48)):
        if span < size * most:
            return f"{span / size:.{int(unit == 's' and span < 10)}f} {unit}"
    return f"{span / 86400:,.0f} d"


# -- who waits for whom, and what is stuck


def board(screen: Screen, data: Data) -> str:
    """Show each list of the board that has entries, under its title."""
    now = screen.now
    waits = [
        (
            ago(one["since"], now),
            one["what"],
            one["asker"],
            one["waits_for"],
            one["subject"] or one["text"],
            one["id"],
        )
        for one in data["waits"]
    ]
    deadlines = [
        (ago(one["due_at"], now), one["state"], one["receiver"], one["giver"], one["subject"], one["id"])
        for one in data["deadlines"]
    ]
    stuck = [(one["id"], one["mailbox"], one["holder"], "; ".join(one["why"])) for one in data["stuck"]]
    dead = [(one["mailbox"], str(one["dead"])) for one in data["dead"]]
    alerts = [(ago(one["at"], now), one["mailbox"], one["way"], one["why"]) for one in data["alerts"]]
    links = [(one["system"], ago(one["since"], now), one["reason"]) for one in data["links"]]
    lists = (
        ("waits", "Who waits for whom", ("SINCE", "WHAT", "WHO", "FOR", "ABOUT", "ID"), waits),
        ("deadlines", "Deadlines", ("DUE", "STATE", "HOLDER", "GIVER", "ABOUT", "ID"), deadlines),
        ("stuck", "Stuck claims", ("ID", "MAILBOX", "HOLDER", "WHY"), stuck),
        ("dead", "Dead letters", ("MAILBOX", "DEAD"), dead),
        ("alerts", "Alerts that were given up", ("WHEN", "MAILBOX", "WAY", "WHY"), alerts),
        ("links", "Links that are down", ("SYSTEM", "SINCE", "WHY"), links),
    )
    shown = [
        f"{title}\n{table(screen, titles, rows)}"
        + (f"And {data['more'][name]} more.\n" if data["more"][name] else "")
        for name, title, titles, rows in lists
        if rows
    ]
    return "\n".join(shown) or "Nobody waits, and nothing is stuck.\n"


declare(
    "board",
    WHOLE,
    verb="board.Board",
    view=board,
    of_room=True,
    about="Of the whole room; with --as or POSTROOM_AGENT, of that agent alone. Marks nothing as read, and writes"
    " nothing.",
    examples=(
        ("postroom board", "the whole room"),
        ("postroom board --as coder --json", "what is about one agent"),
    ),
    looks=True,
)


# -- one letter


def trace(screen: Screen, data: Data) -> str:
    letter, due = data["letter"], [stop["due_at"] for stop in data["stops"]]
    head = [
        ("Id", letter["id"]),
        ("From", letter["sender"]),
        ("Sent", _when(screen, letter["created_at"])),
        ("Expires", _when(screen, letter["expires_at"])),
        ("Due", ", ".join(dict.fromkeys(_when(screen, time) for time in due if time))),
        ("Subject", letter["subject"]),
        ("Number", str(data["number"])),
    ]
    stops = [
        (
            stop["mailbox"],
            state_word(stop),
            str(stop["attempts"]),
            ago(stop["delivered_at"], screen.now),
            ago(stop["read_at"], screen.now),
            ago(stop["acked_at"] or stop["dead_at"], screen.now),
            stop["holder"] or "",
            "" if stop["forwarded"] else stop["reason"] or "",
        )
        for stop in data["stops"]
    ]
    titles = ("MAILBOX", "STATE", "TRIES", "CAME", "READ", "SETTLED", "HOLDER", "REASON")
    shown = (
        table(screen, titles, stops, _STATES, drop=("READ", "TRIES", "CAME", "HOLDER", "SETTLED")) if stops else ""
    )
    return (
        facts(screen, head) + "\n" + shown + _alerts(screen, data) + _tries(screen, data) + _about_it(screen, data)
    )


def _when(screen: Screen, time: str | None) -> str:
    return f"{ago(time, screen.now)} ({moment(time)})" if time else ""


def _alerts(screen: Screen, data: Data) -> str:
    """Show the alerts for a letter and what followed them; nothing where there were none."""
    rows = [
        (stop["mailbox"], ago(at, screen.now), what, how)
        for stop in data["stops"]
        if stop["rings"] or stop["sights"] or stop["done_at"]
        for at, what, how in sorted(_facts_of(stop, data["letter"]["created_at"]), key=_by_time)
    ]
    paint = {_RINGS["failed"]: "yellow", _RINGS["dead"]: "red", "done": "green"}
    return "\n" + table(screen, ("MAILBOX", "WHEN", "WHAT", "HOW"), rows, paint) if rows else ""


def _by_time(fact: tuple[str, str, str]) -> datetime:
    return datetime.fromisoformat(fact[0])


def _facts_of(stop: Data, stored: str) -> Iterator[tuple[str, str, str]]:
    yield stored, "stored", ""
    for ring in stop["rings"]:
        yield ring["at"], _RINGS[ring["outcome"]], f"{ring['way']}: {ring['why']}" if ring["why"] else ring["way"]
    for sight in stop["sights"]:
        yield sight["at"], "shown", f"{sight['host']}, {sight['where']}" if sight["where"] else sight["host"]
    if stop["acked_at"]:
        yield stop["acked_at"], "acknowledged", ""
    if stop["done_at"]:
        yield stop["done_at"], "done", stop["task"]


def _tries(screen: Screen, data: Data) -> str:
    tries = [
        (stop["mailbox"], ago(attempt["at"], screen.now), attempt["holder"], attempt["reason"])
        for stop in data["stops"]
        for attempt in stop["history"]
    ]
    return "\n" + table(screen, ("MAILBOX", "WHEN", "HOLDER", "REASON"), tries, drop=("HOLDER",)) if tries else ""


def _about_it(screen: Screen, data: Data) -> str:
    rows = [
        (message["id"], what, message["sender"], message["subject"] or message["text"].strip().partition("\n")[0])
        for what, kind in (("answer", "replies"), ("passed on", "relays"), ("bounce", "bounces"))
        for message in data[kind]
    ]
    titles = ("ID", "WHAT", "FROM", "ABOUT")
    return "\n" + table(screen, titles, rows, {"bounce": "red"}) if rows else ""


# -- the live view: one frame after the other, on a screen of its own, or as JSON lines

FASTEST, SLOWEST = 0.1, 3600.0  # seconds between two frames

_ORDER: dict[str, Callable[[AgentFlow], float]] = {
    "backlog": lambda agent: agent.backlog,
    "oldest": lambda agent: max(agent.oldest_unread or 0.0, agent.oldest_seen or 0.0, agent.oldest_claimed or 0.0),
    "slow": lambda agent: max(agent.median_to_done or 0.0, agent.oldest_claimed or 0.0),
}


def watch(context: Context) -> Iterator[Answer]:
    """Show the flow of mail again and again."""
    pause = _pause(context)
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
    yield _answer(context, look)
    while context.screen.json and not context.get("once"):
        time.sleep(pause)
        look = room.flow(look)
        yield _answer(context, look)


def _pause(context: Context) -> float:
    pause: float = context.get("every", 1.0)
    if not FASTEST <= pause <= SLOWEST or not math.isfinite(pause):
        hint = f"between {FASTEST:g} and {SLOWEST:g} seconds"
        raise Invalid(f"{pause:g} seconds is out of range", field="--every", hint=hint)
    return pause


def _answer(context: Context, look: Flow) -> Answer:
    return Answer(context.name, _plain(look, context.get("sort", "backlog")), flow)


def _plain(look: Flow, order: str) -> dict[str, Any]:
    agents = sorted(look.agents, key=lambda agent: (-_ORDER[order](agent), agent.mailbox))
    fields = ("seconds", "sent", "settled", "died", "backlog", "median_to_done")
    return {
        "at": to_plain(look.at),
        **{name: getattr(look, name) for name in fields},
        "sent_per_second": look.sent_per_second,
        "settled_per_second": look.settled_per_second,
        "agents": [to_plain(asdict(agent)) for agent in agents],
    }


def _frame(context: Context, look: Flow, pause: float, size: os.terminal_size) -> list[str]:
    """Return the lines of one frame; no more than fit on the screen."""
    screen = context.screen
    screen.width, screen.now = size.columns, look.at
    title = stats_title(screen, sayable(context.room.settings.store), pause)
    return [title, *flow(screen, _plain(look, context.get("sort", "backlog"))).splitlines()][: size.lines]


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


@contextmanager
def named_as_typed(context: Context) -> Iterator[None]:
    """Name the option --room in errors about the address of a room that was passed with it."""
    try:
        yield
    except BadStore as refused:
        refused.field = "--room" if context.get("room") else refused.field
        raise


@command(
    "doctor",
    Option("--repair", help="repair what is safe to repair", kind="flag"),
    Option("--full", help="look at every index too; takes longer", kind="flag"),
    about="Looks at the room's files, their place and their disk, at every letter, at leases, clock and backlog,"
    " writes and reads a record of its own, and says which durability is in force and what that means. Works on a"
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
    settings = {"store": context.get("room"), **dict(context.get("set", ()))}
    with Progress("examining", quiet=context.screen.json) as progress, named_as_typed(context):
        found = doctor(
            **settings,
            repair=bool(context.get("repair")),
            full=bool(context.get("full")),
            progress=progress.tell,
        )
    data = {
        "healthy": found.is_healthy,
        "worst": str(found.worst),
        "durability": _durability(settings),
        "findings": [plain_finding(finding) for finding in found.findings],
    }
    return Answer(context.name, data, diagnosis, code=end_of(found))


def end_of(found: Diagnosis) -> int:
    return _EXIT_CODES.get(found.worst, 0)


def _durability(settings: dict[str, Any]) -> str | None:
    """Return the durability in force, also where the room cannot be opened."""
    store = settings.pop("store")
    try:
        return chosen_settings(store, settings).durability
    except Invalid:
        return None


def plain_finding(finding: Finding) -> dict[str, Any]:
    what, hint = sayable(finding.what), sayable(finding.hint)
    for theirs, ours in _IN_A_SHELL.items():
        what, hint = what.replace(theirs, ours), hint.replace(theirs, ours)
    return {
        "check": finding.check,
        "level": str(finding.level),
        "what": what,
        "hint": hint,
        "repaired": finding.repaired,
    }


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
    if context.is_of_room:
        data = {"room": plain(context.room.stats()), "mailbox": None}
    else:
        data = {"room": None, "mailbox": plain(context.mailbox.stats())}
    return Answer(context.name, data, stats)


@command(
    "top",
    Option("--every", help="look so often, such as 5s; 1s by default", kind="seconds", metavar="SPAN"),
    Option(
        "--sort",
        help="what stands first: the largest backlog, the oldest open letter, the slowest",
        kind="word",
        choices=("backlog", "oldest", "slow"),
        default="backlog",
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
    return watch(context)


@command(
    "trace",
    WHOLE,
    verb="stats.GetTrace",
    places=("id",),
    of_room=True,
    about="With --as or POSTROOM_AGENT, what that agent may see: its own letters whole, of others its own part."
    " Without, or with --all, everything. Alerts are listed too, with their times: stored, rung (a hint),"
    " shown, acknowledged, done.",
    examples=(("postroom trace m-2", "all of it"), ("postroom trace m-2 --as coder", "as its sender sees it")),
    looks=True,
)
def run_trace(context: Context) -> Answer:
    answer = context.answer(trace)
    for stop in answer.data["stops"]:
        if stop["state"] == State.QUEUED and AT in stop["mailbox"] and not (stop["reason"] or stop["due_at"]):
            from .peers import why_it_waits  # noqa: PLC0415 - few letters go to other systems

            stop["reason"] = why_it_waits(context, stop["mailbox"])
    return answer

"""Views of the answers about letters, threads, agents and the room, for people.

A view is a function of the screen and an answer's data alone; `output` lays out its tables and lists.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..constants import NO_DIGEST, NO_MAIL
from ..core.presentation import OWN_NOTICE, TAKEN_BACK_NOTICE, data_line, file_line
from ..core.presentation import markdown as fenced
from ..model.message import UNPROVEN
from ..model.names import PEOPLE, fold
from .output import (
    ago,
    body_lines,
    due,
    facts,
    hint,
    listing,
    moment,
    one_line,
    page,
    record,
    says,
    state_word,
    table,
)

if TYPE_CHECKING:
    from .answer import Screen
    from .output import Column


Data = Mapping[str, Any]
_URGENT = {"urgent": "red", "high": "yellow", "low": "dim"}
_STATES = {"dead": "red", "claimed": "cyan", "done": "green"}

# -- letters


def inbox(screen: Screen, data: Data) -> str:
    """Show a list of letters, and what to do with them. Where all are unread, their state is not shown."""
    if not data["letters"]:
        return NO_MAIL.replace("{0}", data["mailbox"])
    shown = letters(screen, data, states="unread_only" in screen.values)
    return shown + _next(screen, "ID", ("read", "shows one"), ("ack", "is done with it"))


def _about(_screen: Screen, letter: Data) -> str:
    first: str = letter["subject"] or letter["text"].strip().partition("\n")[0]
    return first


_LETTER: dict[str, Column] = {
    "ID": "id",
    "AGE": "created_at",
    "FROM": lambda screen, letter: letter["sender"] + (f" ({UNPROVEN})" if _is_unproven(screen, letter) else ""),
    "PRIORITY": "priority",
    "STATE": lambda _, letter: state_word(letter["delivery"]) if "delivery" in letter else "",
    "ABOUT": _about,
}


def letters(screen: Screen, data: Data, *, states: bool = True) -> str:
    if data["letters"] and not screen.tables:
        return _fenced(screen, data)
    columns = {title: column for title, column in _LETTER.items() if states or title != "STATE"}
    drop = [title for title in ("PRIORITY", "STATE", "AGE", "FROM") if title in columns]
    return listing("letters", columns, "No letters.", paint=_URGENT | _STATES, drop=drop)(screen, data)


def outbox(screen: Screen, data: Data) -> str:
    """Show the letters that an agent sent, and their recipients."""
    if not data["letters"]:
        return f"{data['mailbox']} has sent nothing.\n"
    if not screen.tables:
        return _fenced(screen, data, OWN_NOTICE)
    gone = {(one["id"], fold(one["mailbox"])): one["where"] for one in data["forwarded"]}

    def recipients(_screen: Screen, letter: Data) -> str:
        names = [one["address"] for one in letter["recipients"]]
        places = [gone.get((letter["id"], fold(name))) for name in names]
        return ", ".join(f"{n} (forwarded to {p})" if p else n for n, p in zip(names, places, strict=True))

    columns = {**_LETTER, "TO": recipients}
    shown = {title: columns[title] for title in ("ID", "AGE", "TO", "PRIORITY", "ABOUT")}
    rows = listing("letters", shown, paint=_URGENT, drop=("PRIORITY", "AGE"))(screen, data)
    return rows + _next(screen, "ID", ("trace", "tells what became of one"), ("unsend", "takes one back"))


def letter(screen: Screen, data: Data) -> str:
    """Show a whole letter."""
    one = data["letter"]
    shown = thread(screen, {**data, "letters": [one] if one else []}, "Nothing came.")
    if one is None or screen.taken_back([one["id"]]):
        return shown
    return shown + _next(screen, one["id"], ("reply", "answers it"), ("ack", "is done with it"))


def read(screen: Screen, data: Data) -> str:
    """Show a whole letter, and where its files were saved."""
    saved = says("Saved {file} ({bytes} bytes).", each="saved")(screen, data) if data["saved"] else ""
    return letter(screen, data) + (saved if data["saved"] != [] else "It encloses no file.\n")


def _next(screen: Screen, id: str, *verbs: tuple[str, str]) -> str:
    """Show what may be done with a letter."""
    return "".join(hint(screen, f"{verb} {id}", what) for verb, what in verbs)


def thread(screen: Screen, data: Data, none: str = "No letters.") -> str:
    if not data["letters"]:
        return f"{none}\n"
    if not screen.tables:
        return _fenced(screen, data)
    taken_back = screen.taken_back([letter["id"] for letter in data["letters"]])
    return "\n".join(
        (f"{TAKEN_BACK_NOTICE}\n" if letter["id"] in taken_back else "") + _whole(screen, letter)
        for letter in data["letters"]
    )


def work(screen: Screen, data: Data) -> str:
    """Show claimed letters, each with its token."""
    entries = [
        thread(screen, {"letters": [letter], "accepted": (accepted,)}) + _lease(screen, letter)
        for letter, accepted in zip(data["letters"], data["accepted"], strict=True)
    ]
    ids, tokens = ([letter[name] for letter in data["letters"]] for name in ("id", "token"))
    settle = hint(screen, f"ack {' '.join(ids)} --token {tokens[0]}") if ids else "Nothing came.\n"
    return "\n".join(entries) + settle


_lease = record({"Token": "token", "Lease": lambda _, letter: f"{letter['lease_seconds']:g} s from now"})


def dead(screen: Screen, data: Data) -> str:
    """Show a list of dead letters with their mailboxes and reasons."""
    if screen.tables or not data["letters"]:
        return _dead(screen, data)
    pairs = zip(data["accepted"], data["letters"], strict=True)
    return "\n".join(
        _fenced(screen, {"accepted": (accepted,)}) + _why(screen, letter) for accepted, letter in pairs
    )


_why = record({"Mailbox": "mailbox", "Reason": "reason"}, "delivery")
_dead = listing(
    "letters",
    {
        "ID": "id",
        "DIED": "delivery.dead_at",
        "MAILBOX": "delivery.mailbox",
        "FROM": "sender",
        "REASON": "delivery.reason",
        "ABOUT": _about,
    },
    "No dead letters.",
    then=("dead show ID", "shows one"),
    drop=("DIED", "FROM", "ABOUT"),
)


_tries = listing("history", {"WHEN": "at", "HOLDER": "holder", "REASON": "reason"})


def dead_letter(screen: Screen, data: Data) -> str:
    letter, at = data["letter"], data["letter"]["delivery"]
    shown = thread(screen, {**data, "letters": [letter]}) + facts(screen, [("Reason", at["reason"] or "")])
    history = f"\n{_tries(screen, at)}" if at["history"] else ""
    return shown + history + hint(screen, f"dead revive {letter['id']}", "gives it another chance")


def _whole(screen: Screen, letter: Data) -> str:
    to = ", ".join(
        f"{r['address']}{'' if r['kind'] == 'to' else ' (' + r['kind'] + ')'}" for r in letter["recipients"]
    )
    head = [
        ("Id", letter["id"]),
        ("From", letter["sender"] + _known_by(screen, letter)),
        ("To", to),
        ("Sent", f"{ago(letter['created_at'], screen.now)} ({moment(letter['created_at'])})"),
        ("Subject", letter["subject"]),
        ("Kind", letter["kind"] if letter["kind"] != "message" else ""),
        ("Priority", letter["priority"] if letter["priority"] != "normal" else ""),
        ("Due", due((letter["task"] or {}).get("deadline"), screen.now)),
        ("Thread", letter["thread"] if letter["thread"] != letter["id"] else ""),
        ("Tags", ", ".join(letter["tags"])),
        ("Attached", ", ".join(letter["attachments"])),
    ]
    return facts(screen, head) + "".join(f"{line}\n" for part in letter["parts"] for line in _part(part))


def _known_by(screen: Screen, letter: Data) -> str:
    if letter["proof"]:
        return " (proven with the person's key)"
    if _is_unproven(screen, letter):
        return f" ({UNPROVEN})"
    return " (verified)" if letter["proven"] else ""


def _part(part: Data) -> list[str]:
    if part["type"] == "text":
        return body_lines(part["text"])
    if part["type"] == "file":
        return body_lines(file_line(dict(part)))
    return body_lines(data_line(dict(part)))


def _fenced(screen: Screen, data: Data, notice: str = "") -> str:
    people = _people(screen)
    taken_back = screen.taken_back([message.id for message in data["accepted"]])
    shown = (
        fenced(
            message,
            os.urandom(8).hex(),
            notice=notice,
            people=people,
            is_taken_back=message.id in taken_back,
        )
        for message in data["accepted"]
    )
    return "\n\n".join(shown) + "\n"


def _people(screen: Screen) -> set[str]:
    """Return the folded names of people."""
    return {*PEOPLE, fold(screen.human), *screen.people()}


def _is_unproven(screen: Screen, letter: Data) -> bool:
    """Return whether a letter is in a person's name, without proof."""
    return not letter["proof"] and fold(letter["sender"]) in _people(screen)


# -- sending and settling


_receipt = says(
    "Sent {id} to {to}.",
    "It arrives {at}.",
    "No agent named {unknown} has been seen here yet. The letter will wait.",
    "Chosen: {routed}.",
    "Unproven: {unproven}.",
)


def receipt(screen: Screen, data: Data) -> str:
    """Show that a letter was sent, and when it arrives if that is later. The person always counts as known."""
    letter, at = data["letter"], screen.values.get("at")
    if data["repeated"]:
        return f"Sent before as {data['id']}; nothing was sent.\n"
    due = screen.now + timedelta(seconds=at) if isinstance(at, float) else at
    shown = {
        "to": [r["address"] for r in letter["recipients"]],
        "at": due if due is not None and due > screen.now else None,
        "unknown": " or ".join(name for name in data["unknown"] if fold(name) != fold(screen.human)),
        "unproven": "no key signed it" if _is_unproven(screen, letter) else "",
    }
    waits = "".join(_why_it_waits(screen, one) for one in data["carried"])
    return _receipt(screen, {**data, **shown}) + waits


def _why_it_waits(screen: Screen, carried: Data) -> str:
    since = f" (since {ago(carried['since'], screen.now)})" if carried["since"] else ""
    return f"It waits: {one_line(carried['reason'])}{since}.\n" if carried["reason"] else ""


def sent(screen: Screen, data: Data) -> str:
    """Show that a letter was sent which wants an answer, and how to wait for that."""
    waiting = hint(screen, f"wait --thread {data['thread']}", "waits for the answer")
    return receipt(screen, data) + ("" if data["repeated"] else waiting)


def receipts(screen: Screen, data: Data) -> str:
    return "".join(receipt(screen, one) for one in data["receipts"])


_moved = listing("letters", {"ID": "id", "STATE": "state", "TRIES": "attempts", "REASON": "reason"}, paint=_STATES)


def moved(screen: Screen, data: Data) -> str:
    later = [m for m in data["letters"] if m["state"] == "unread" and m["due_at"] and m["due_at"] > screen.now]
    sent = says("Sent {id}.", each="receipts")(screen, data) if data.get("receipts") else ""
    return (
        _moved(screen, data) + says("{id}: next try {due_at}.", each="letters")(screen, {"letters": later}) + sent
    )


def worked(screen: Screen, data: Data) -> str:
    if data["letter"] is None:
        return "Nothing came.\n"
    return moved(screen, {"letters": [data["letter"]], "receipts": data["receipts"]})


# -- everything else


def counts(screen: Screen, data: Data) -> str:
    names = ("urgent", "high", "normal", "low", "total")
    return table(screen, [name.upper() for name in names], [[str(data[name]) for name in names]])


def digest(_screen: Screen, data: Data) -> str:
    return f"{data['text']}\n" if data["text"] else NO_DIGEST


threads = listing(
    "threads",
    {"ID": "id", "LAST": "last_at", "LETTERS": "count", "WHO": "participants", "ABOUT": "subject"},
    "No threads with replies.",
)
conversations = listing(
    "conversations",
    {"ID": "id", "LAST": "last_at", "TURNS": "turns", "WHO": "participants", "ABOUT": "subject"},
    "No conversations.",
)
turns = listing(
    "turns",
    {"WHEN": "created_at", "WHO": "participant", "LETTER": lambda screen, turn: screen.short(turn["message_id"])},
    "No turns.",
)


def conversation(screen: Screen, data: Data) -> str:
    return conversations(screen, {"conversations": [data["conversation"]]})


def agents(screen: Screen, data: Data) -> str:
    if not data["agents"] and data.get("gone"):
        return f"Nobody is here; {data['gone']} not active for long.\n" + hint(screen, "agents --gone")
    return _agents(screen, data)


def _works_on(_screen: Screen, agent: Data) -> str:
    """Return what an agent works on: its tasks by subject, and what it says itself."""
    tasks = {task["id"]: task["subject"] for task in agent["tasks"]}
    return "; ".join(tasks.get(one) or one for one in agent["presence"]["current_tasks"])


def _takes_mail_from(_screen: Screen, agent: Data) -> str:
    allowed = agent["card"]["allow_from"]
    return "everyone" if "*" in allowed else ", ".join(allowed)


_agents = listing(
    "agents",
    {
        "NAME": "card.id",
        "STATUS": lambda _, agent: agent["presence"]["status"] if agent["registered"] else "not registered",
        "SEEN": lambda screen, agent: ago(agent["presence"]["last_heartbeat"], screen.now),
        "PROGRAM": "card.program",
        "SCOPES": "card.scopes",
        "CAN": "card.capabilities",
        "WORKS ON": _works_on,
        "ABOUT": "card.description",
    },
    "Nobody has registered yet.",
    first="register --as NAME --scope TEAM",
    paint={"busy": "yellow", "idle": "green"},
)
agent = record(
    {
        "Name": "card.id",
        "Called": "card.display_name",
        "Status": lambda _, agent: f"{agent['presence']['status']} ({agent['presence']['warmth']})",
        "Seen": lambda screen, agent: ago(agent["presence"]["last_heartbeat"], screen.now),
        "Works on": _works_on,
        "Can": "card.capabilities",
        "Scopes": "card.scopes",
        "Takes mail from": _takes_mail_from,
        "Program": "card.program",
        "Model": "card.model",
        "About": "card.description",
    },
    "agent",
)
_changes = listing(
    "changes",
    {
        "NUMBER": lambda _, change: str(change["number"]),
        "WHAT": "what",
        "WHERE": lambda _, change: change["mailbox"] or change["kind"] or "",
        "STATE": "state",
        "WHICH": lambda _, change: change["message_id"] or change["key"] or "",
    },
    "Nothing happened.",
)


changes = page(_changes, says("Cursor: {cursor}", none="Cursor: none, there is no room yet"), apart="")


def room(screen: Screen, data: Data) -> str:
    pairs = [
        ("Room", data["store"] if data["exists"] else f"{data['store']}, which is not there yet"),
        ("Mailboxes", ", ".join(data["mailboxes"]) or "none yet"),
        ("Damaged letters", ", ".join(data["quarantined"])),
        ("Cursor", data["cursor"] or ""),
    ]
    return facts(screen, [*pairs, *((name, str(value)) for name, value in data["settings"].items())])


def numbers(_screen: Screen, data: Data) -> str:
    """Show counts in one sentence."""
    parts = [
        f"{name.replace('_', ' ')} {value:,}" for name, value in data.items() if isinstance(value, int) and value
    ]
    return f"{', '.join(parts) or 'Nothing to do'}.\n".capitalize()

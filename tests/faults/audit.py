"""A room held against its ledger. Every broken promise is one complaint; no complaints, no broken promise.

The words of the ledger:

    try    key, to, ...       about to send this letter to these mailboxes
    sent   key                the room took it
    ask    look               about to claim something
    got    look, id, box      that look was given this letter
    done   id, box            the room took the ack
    dead   id, box            the room took the refusal
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from postroom.model.delivery import OPEN, State
from postroom.model.message import BOUNCE
from postroom.model.query import Query
from postroom.store.protocol import Store
from tests.faults.ledger import Line, lines_with

SETTLED = {"done": State.DONE, "dead": State.DEAD}


class Room:
    """What a room holds, once, for all questions of an audit."""

    def __init__(self, store: Store) -> None:
        self.found = store.find(Query(order="age"))
        self.letters = {f.message.id: f.message for f in self.found}
        self.by_key = {m.key: m for m in self.letters.values() if m.key}
        self.boxes: dict[str, set[str]] = {}
        for f in self.found:
            self.boxes.setdefault(f.message.id, set()).add(f.delivery.mailbox)


def audit(store: Store, written: list[Line], text_of: Callable[[str], str]) -> list[str]:
    """All that is wrong. `text_of` says what the letter with a key must say."""
    room = Room(store)
    return [
        *lost(room, written),
        *changed(room, written, text_of),
        *ghosts(room, written),
        *halves(room, written),
        *disorder(room),
        *forgotten_settlements(room, written),
        *handed_out_again(written),
        *completed_twice(written),
    ]


def lost(room: Room, written: list[Line]) -> list[str]:
    return [f"lost: {key}" for (key,) in lines_with(written, "sent") if key not in room.by_key]


def changed(room: Room, written: list[Line], text_of: Callable[[str], str]) -> list[str]:
    keys = [line[0] for line in lines_with(written, "try") if line[0] in room.by_key]
    return [f"changed: {key}" for key in keys if room.by_key[key].text != text_of(key)]


def ghosts(room: Room, written: list[Line]) -> list[str]:
    """Letters nobody tried to send, and letters that are there twice. Answers and notices have parents instead."""
    tried = {line[0] for line in lines_with(written, "try")}
    own = [m.key for m in room.letters.values() if m.in_reply_to is None]
    return [
        *(f"ghost: {key}" for key in own if key not in tried),
        *(f"twice: {key}" for key, times in Counter(own).items() if times > 1),
        *(f"ghost: {m.id}" for m in room.letters.values() if m.in_reply_to and m.in_reply_to not in room.letters),
    ]


def halves(room: Room, written: list[Line]) -> list[str]:
    """Letters that reached some of their recipients."""
    wanted = {key: set(to) for key, *to in lines_with(written, "try") if key in room.by_key}
    return [f"half: {key}" for key, to in wanted.items() if room.boxes[room.by_key[key].id] != to]


def disorder(room: Room) -> list[str]:
    """Letters of one sender that were accepted in another order than they were sent. Keys end in their number."""
    last: dict[str, int] = {}
    wrong = []
    for message in room.letters.values():  # as accepted
        if message.key is None or message.in_reply_to is not None:
            continue
        who, _, number = message.key.rpartition(":")
        if int(number) < last.get(who, -1):
            wrong.append(f"disorder: {message.key}")
        last[who] = int(number)
    return wrong


def forgotten_settlements(room: Room, written: list[Line]) -> list[str]:
    """Acks and refusals that were confirmed, and that the room does not know of."""
    state = {(f.message.id, f.delivery.mailbox): f.delivery.state for f in room.found}
    return [
        f"not {word}: {id} in {box} is {state.get((id, box))}"
        for word, wanted in SETTLED.items()
        for id, box in lines_with(written, word)
        if state.get((id, box)) is not wanted
    ]


def handed_out_again(written: list[Line]) -> list[str]:
    """Letters given to a look that began after they were settled."""
    settled: dict[tuple[str, str], int] = {}
    request: dict[str, int] = {}
    again = []
    for place, (_, word, *about) in enumerate(written):
        if word in SETTLED:
            settled.setdefault((about[0], about[1]), place)
        elif word == "ask":
            request[about[0]] = place
        elif word == "got":
            look, id, box = about
            if settled.get((id, box), len(written)) < request[look]:
                again.append(f"handed out again: {id} in {box}")
    return again


def completed_twice(written: list[Line]) -> list[str]:
    times = Counter((id, box) for word in SETTLED for id, box in lines_with(written, word))
    return [f"completed twice: {id} in {box}" for (id, box), count in times.items() if count > 1]


# -- for rooms with certain habits


def unanswered(store: Store, shell: str) -> list[str]:
    """In the mailbox where ack and reply are one commit, a letter is done exactly if there is one answer to it."""
    room = Room(store)
    answers = Counter(m.in_reply_to for m in room.letters.values() if m.sender == shell)
    return [
        f"{f.delivery.state} with {answers[f.message.id]} answers: {f.message.id}"
        for f in room.found
        if f.delivery.mailbox == shell and f.message.kind != BOUNCE
        if answers[f.message.id] != (f.delivery.state is State.DONE)
    ]


def unbounced(store: Store) -> list[str]:
    """A letter is dead exactly if its sender was told, once."""
    room = Room(store)
    result = Counter(m.in_reply_to or "nothing" for m in room.letters.values() if m.kind == BOUNCE)
    dead = Counter(f.message.id for f in room.found if f.delivery.state is State.DEAD)
    return [
        f"dead {dead[id]} times, told {result[id]} times: {id}" for id in dead | result if dead[id] != result[id]
    ]


def unsettled(store: Store, boxes: tuple[str, ...]) -> list[str]:
    """Mail that nobody got to, though everybody has stopped looking for more."""
    found = [f for box in boxes for f in store.find(Query(mailbox=box, states=OPEN))]
    return [f"never settled: {f.message.key}" for f in found]

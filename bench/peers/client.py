"""What a client process does: it sends or receives for a while whenever all are told to go."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from msgspec import Struct

from ..measure import LETTER
from ..workers import now
from .names import find
from .peer import Send, Take

CLIENTS = 8
ALL = 10**9
FEWEST = 3  # messages of a client, however slow it goes


class Phase(Struct, frozen=True, kw_only=True):
    """One slot of a round. It ends when its time is up, or each client has done its part, or nothing is left."""

    act: str  # send or take
    clients: int
    seconds: float
    most: int = ALL  # messages of each client
    counts: bool = True  # else it only prepares or cleans up


class Turn(Struct):
    """What one client did in one phase."""

    ids: list[str]
    seconds: list[float]  # of each message
    began: float = 0.0
    ended: float = 0.0  # when the last message was through
    emptied: bool = False  # it saw that nothing is left


def work(
    start: Callable[[], None], name: str, address: str, place: int, serial: int, phases: list[Phase]
) -> list[Turn]:
    """All clients wait for each other before each phase; those who have no part in it rest."""
    peer = find(name)
    send, take = peer.sender(address), peer.receiver(address)
    letters = (f"{serial}-{place}-{number}" for number in count())
    turns = []
    for phase in phases:
        start()
        if place >= phase.clients:
            turns.append(Turn([], []))
        elif phase.act == "send":
            turns.append(_send(send, letters.__next__, phase))
        else:
            turns.append(_take(take, phase))
    return turns


def _send(send: Send, next_id: Callable[[], str], phase: Phase) -> Turn:
    turn = Turn([], [], now())
    before, end = turn.began, turn.began + phase.seconds
    while (before < end or len(turn.ids) < FEWEST) and len(turn.ids) < phase.most:
        id = next_id()
        send(_body(id))
        before = _note(turn, id, before)
    return turn


def _take(take: Take, phase: Phase) -> Turn:
    """Nobody sends meanwhile: when nothing is there, nothing will come."""
    turn = Turn([], [], now())
    before, end = turn.began, turn.began + phase.seconds
    while before < end or len(turn.ids) < FEWEST:
        body = take()
        if body is None:
            turn.emptied = True
            break
        before = _note(turn, _id(body), before)
    return turn


def _note(turn: Turn, id: str, before: float) -> float:
    turn.ended = now()
    turn.ids.append(id)
    turn.seconds.append(turn.ended - before)
    return turn.ended


def _body(id: str) -> bytes:
    """1 KiB, with its number at the front."""
    return f"{id} {LETTER}"[:1024].encode()


def _id(body: bytes) -> str:
    return body.split(b" ", 1)[0].decode()

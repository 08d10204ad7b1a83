"""Rounds in which every peer has its turn: one client sends, eight send, one receives, eight receive.

Libraries are compared with the embedded room, and servers with `postroom serve`: like with like. At the end each
server has one more turn with a crowd of clients, which is a report and no comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

from msgspec import Struct

from ..workers import Worker, start_together
from .client import ALL, CLIENTS, Phase, Turn, work
from .names import EMBEDDED, SERVER, find
from .peer import Missing, Peer

WAITING = 4000  # messages that may lie in a peer, for each second of a slot; some are slower the more there are
DRAIN = 60.0  # seconds for what is left over at the end
CROWD = 32  # clients of a server, at the end
COLUMNS = ("send, 1 client", "send, 8 clients", "receive + ack, 1 client", "receive + ack, 8 clients")
CROWDED = ("send, 32 clients", "receive + ack, 32 clients")


class Row(Struct, kw_only=True):
    """What became of one peer."""

    name: str
    survives: str
    is_server: bool
    how: str
    syncs: str
    version: str = ""
    missing: str = ""  # why it is not in the comparison
    rates: dict[str, list[float]]  # column -> messages per second, a number per round
    late: dict[str, list[float]]  # column -> seconds; 99 of 100 are faster
    ratios: dict[str, float]  # column -> median over the rounds of Postroom's rate / this one's
    sent: int = 0
    lost: int = 0
    doubled: int = 0
    drained: bool = False  # else what was not received yet counts as lost


def compare(names: Sequence[str], folder: Path, rounds: int, seconds: float) -> list[Row]:
    """All servers run all the time; the clients of one peer are there in its turn only."""
    rows = {name: _row(find(name)) for name in names}
    result: dict[str, tuple[Counter[str], Counter[str]]] = {name: (Counter(), Counter()) for name in names}
    with ExitStack() as running:
        addresses = {name: _start(rows[name], folder / str(i), running) for i, name in enumerate(names)}
        for number in range(rounds):
            for name in _rotated(names, number):
                if not rows[name].missing:
                    waiting = result[name][0].total() - result[name][1].total()
                    phases = _phases(seconds, waiting, first=number == 0, last=number == rounds - 1)
                    _turn(rows[name], addresses[name], number, phases, result[name])
                print(f"\rround {number + 1} of {rounds}: {name:40}", end="", flush=True)
        for name in names:
            if rows[name].is_server and not rows[name].missing:
                _turn(rows[name], addresses[name], rounds, _crowd_phases(seconds), result[name])
        print()
    for name, (sent, taken) in result.items():
        _count(rows[name], sent, taken)
        _relate(rows[name], rows[SERVER if rows[name].is_server else EMBEDDED])
    return list(rows.values())


def _row(peer: Peer) -> Row:
    return Row(
        name=peer.name,
        survives=peer.survives,
        is_server=peer.is_server,
        how=peer.how,
        syncs=peer.syncs,
        rates={column: [] for column in (*COLUMNS, *CROWDED)},
        late={column: [] for column in (*COLUMNS, *CROWDED)},
        ratios={},
    )


def _start(row: Row, folder: Path, running: ExitStack) -> str:
    """Where its clients find it; a peer that cannot be had is left out, and its row says why."""
    peer = find(row.name)
    folder.mkdir()
    try:
        row.version = peer.version()
        address = peer.start(folder)
    except Missing as why:
        row.missing = str(why)
        return ""
    running.callback(peer.stop)
    return address


def _rotated(names: Sequence[str], by: int) -> list[str]:
    """Nobody is always the first, or always behind the same one."""
    at = by * 3 % len(names)
    return [*names[at:], *names[:at]]


def _phases(seconds: float, waiting: int, *, first: bool, last: bool) -> list[Phase]:
    """The last receivers have twice the time, so that little is left; one client takes what is, at the end."""
    room = max(int(WAITING * seconds) - waiting, 400)
    fill = Phase(act="send", clients=CLIENTS, seconds=DRAIN, most=60, counts=False)
    sending = [_slot("send", 1, seconds, room // 4), _slot("send", CLIENTS, seconds, room // CLIENTS * 3 // 4)]
    taking = [_slot("take", 1, seconds), fill, _slot("take", CLIENTS, 2 * seconds)]  # one may have emptied it
    return [fill] * first + sending + taking + [_DRAIN] * last


def _crowd_phases(seconds: float) -> list[Phase]:
    return [_slot("send", CROWD, seconds), _slot("take", CROWD, 2 * seconds), _DRAIN]


_DRAIN = Phase(act="take", clients=1, seconds=DRAIN, counts=False)


def _slot(act: str, clients: int, seconds: float, most: int = ALL) -> Phase:
    return Phase(act=act, clients=clients, seconds=seconds, most=most)


def _turn(
    row: Row, address: str, serial: int, phases: list[Phase], results: tuple[Counter[str], Counter[str]]
) -> None:
    clients = max(phase.clients for phase in phases)
    workers = [Worker(work, row.name, address, place, serial, phases) for place in range(clients)]
    try:
        for _ in phases:
            start_together(workers)
        turns: list[list[Turn]] = [worker.finish() for worker in workers]
    except (EOFError, OSError, TimeoutError):
        row.missing = "one of its clients failed"
        return
    for phase, together in zip(phases, zip(*turns, strict=True), strict=True):
        results[phase.act == "take"].update(id for turn in together for id in turn.ids)
        if phase.counts:
            _note(row, _column(phase), [turn for turn in together if turn.ids])
        row.drained = together[0].emptied


def _column(phase: Phase) -> str:
    act = "send" if phase.act == "send" else "receive + ack"
    return f"{act}, {phase.clients} client{'s' if phase.clients > 1 else ''}"


def _note(row: Row, column: str, turns: list[Turn]) -> None:
    seconds = [second for turn in turns for second in turn.seconds]
    if len(seconds) < 2:
        row.missing = f"nothing came through: {column}"
        return
    lasted = max(turn.ended for turn in turns) - min(turn.began for turn in turns)
    row.rates[column].append(len(seconds) / lasted)
    row.late[column].append(quantiles(seconds, n=100)[98])


def _count(row: Row, sent: Counter[str], taken: Counter[str]) -> None:
    row.sent = sent.total()
    row.lost = len(sent.keys() - taken.keys())
    row.doubled = sum(times - 1 for times in taken.values())


def _relate(row: Row, ours: Row) -> None:
    if row.missing or ours.missing:
        return
    for column in COLUMNS:
        pairs = zip(ours.rates[column], row.rates[column], strict=True)
        row.ratios[column] = median(above / below for above, below in pairs)

"""A Python in which the program is loaded already, and which forks for each command: starting Python and loading
the program is most of what a short command costs, and four times as much where lines are counted as covered.
Each command is still a process of its own, with words, folder and surroundings of its own. What it loads when it
starts from nothing, the cold ones show (`conftest.COLD`).
"""

from __future__ import annotations

import atexit
import os
import pickle
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module

from coverage import Coverage

HEAD = 8  # bytes that tell how long an order is
# What Python itself heeds when it starts.
OF_PYTHON = ("PYTHON", "COVERAGE", "LC_", "LANG", "TZ")
# They import nanobot, which is installed in environments of its own alone (tests/nanobot/channel).
NEED_NANOBOT = tuple(f"postroom.nanobot.channel.{name}" for name in ("channel", "tools"))
Order = tuple[Sequence[str], Mapping[str, str], str]  # words, surroundings, folder


class Stove:
    """Keeps such a Python warm, for one command at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.in_use = threading.Lock()
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,  # pipes, as each command gets: Python looks at what they are when it starts
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )

    def run(self, order: bytes, stdin: bytes, patience: float) -> tuple[int, bytes, bytes]:
        """How a command ended, and what it said."""
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe(), os.pipe()
        theirs = [their_in, their_out, their_err]
        socket.send_fds(self._ours, [len(order).to_bytes(HEAD)], theirs)
        self._ours.sendall(order)
        for number in theirs:
            os.close(number)
        bound = threading.Timer(patience, self._end)
        bound.start()
        try:
            with open(our_out, "rb") as out, open(our_err, "rb") as err, ThreadPoolExecutor(2) as others:
                others.submit(_give, our_in, stdin)
                complaint = others.submit(err.read)
                answer = out.read()
            end = self._ours.recv(HEAD)
            assert end, f"it is gone: {answer!r} {complaint.result()!r}"
            return int(end), answer, complaint.result()
        finally:
            bound.cancel()

    def put_out(self) -> None:
        self._end()
        self._ours.close()
        self._process.communicate()

    def _end(self) -> None:
        """End it, and the command that it runs."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _give(number: int, stdin: bytes) -> None:
    with suppress(BrokenPipeError), open(number, "wb", buffering=0) as into:
        while stdin:
            stdin = stdin[into.write(stdin) :]


_STOVES: dict[frozenset[tuple[str, str]], Stove] = {}


def run_warm(order: Order, stdin: bytes, patience: float) -> tuple[int, bytes, bytes] | None:
    """How it ended and what it said; nothing where it must be started as usual, for another runs just now."""
    environment = order[1]
    kind = frozenset((name, value) for name, value in environment.items() if name.startswith(OF_PYTHON))
    stove = _STOVES.get(kind) or _STOVES.setdefault(kind, Stove(environment))
    if not stove.in_use.acquire(blocking=False):
        return None
    try:
        return stove.run(pickle.dumps(order), stdin, patience)
    except BaseException:  # a test that was given up must not leave its answer to the next
        del _STOVES[kind]
        stove.put_out()
        raise
    finally:
        stove.in_use.release()


@atexit.register
def put_out_all() -> None:
    for stove in _STOVES.values():
        stove.put_out()


# -- the other side


def load_the_house() -> None:
    import postroom

    for part in pkgutil.walk_packages(postroom.__path__, "postroom.", onerror=str):
        if not part.name.endswith("__main__") and not part.name.startswith(NEED_NANOBOT):
            import_module(part.name)


def keep_what_was_counted() -> None:
    """Once, so that no command has to write it down again."""
    if counting := Coverage.current():
        counting.save()


def serve(orders: socket.socket) -> None:
    while True:
        head, numbers, _, _ = socket.recv_fds(orders, HEAD, 3)
        if not head:
            return
        order = orders.recv(int.from_bytes(head), socket.MSG_WAITALL)
        child = os.fork()
        if not child:
            orders.close()
            become(pickle.loads(order), numbers)  # noqa: S301 - our own tests wrote it
        for number in numbers:
            os.close(number)
        _, status = os.waitpid(child, 0)
        orders.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(order: Order, numbers: list[int]) -> None:
    """The program, as if it were started so."""
    from postroom.cli.main import entry

    words, environment, folder = order
    for place, number in enumerate(numbers):
        os.dup2(number, place)
        os.close(number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    entry()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as place_of_orders:
        load_the_house()
        keep_what_was_counted()
        serve(place_of_orders)

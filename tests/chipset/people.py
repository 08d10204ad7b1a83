"""The agents of the flows, each a process of its own: `python -m tests.chipset.people ROLE STATE [WORDS]`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from postroom.chipset import Chipset, Hook, Mail, Patience, Status, Witness
from postroom.chipset.folder import StateFolder
from postroom.chipset.hooks import Hooks, Roles
from postroom.errors import Busy, IllegalMove, Refused, StaleRevision
from tests.coverage import uncounted
from tests.daemons import until

HOME = Path(__file__).parent.parent.parent
PATIENCE = 60.0  # seconds; a bound, not a pace
SHORT = Patience(stall_after=0.4, nudge_every=0.2, answer_within=0.2, pause=0.05)
STEP = 0.02


def start(role: str, state: Path, *words: str) -> subprocess.Popen[str]:
    environment = uncounted(os.environ) | {"PYTHONPATH": f"{HOME / 'src'}:{HOME}"}
    command = [sys.executable, "-m", "tests.chipset.people", role, str(state), *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=HOME)


def finish(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """What each of them said, when all went well."""
    message = [process.communicate(timeout=PATIENCE)[0].strip() for process in processes]
    assert {process.returncode for process in processes} == {0}
    return message


@contextmanager
def running(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """Until the block is left, however that is."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


# -- roles


class Careless(Chipset):
    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.hooks = Hooks(CarelessFolder(state), self.clock, Roles())


class CarelessFolder(StateFolder):
    @contextmanager
    def lock(self) -> Iterator[None]:
        yield

    def write(self, fields: dict[str, Any] | Struct, *where: str) -> None:
        time.sleep(1)
        super().write(fields, *where)


def setter(state: str, name: str, bead: str, chipset: Chipset | None = None) -> None:
    """Wait for the start, then set the hook."""
    chipset = chipset or Chipset(state)
    Path(state, f"{name}-is-there").touch()
    until(lambda: Path(state, "go").exists())
    try:
        chipset.hooks.set("polecat-alpha", bead, by=name)
    except IllegalMove as busy:
        print(f"lost: {busy.message}")
    else:
        print(f"won: {bead}")


def careless(state: str, name: str, bead: str) -> None:
    """A planted bug: look and write without the lock, and slowly."""
    setter(state, name, bead, Careless(state))


def toucher(state: str, times: str) -> None:
    chipset = Chipset(state, durable=False)
    for _ in range(int(times)):
        chipset.hooks.touch("polecat-alpha")


def noter(state: str, name: str, times: str) -> None:
    chipset = Chipset(state, durable=False)
    for number in range(int(times)):
        chipset.notes.write("polecat-alpha", bead="gt-1", summary=f"{name} {number}")


def sender(state: str, name: str, times: str) -> None:
    with Chipset(state, durable=False) as chipset:
        for number in range(int(times)):
            mail = {"from": name, "to": "mayor", "type": "coordination", "subject": "s", "body": f"{number}"}
            chipset.mail.send_mail(mail)


def polecat(state: str, name: str) -> None:
    """Take up what is on the hook, work with touches, complete, report; until told to stop."""
    with Chipset(state) as chipset:
        Path(state, f"{name}-is-there").touch()
        while not Path(state, "stop").exists():
            hook = chipset.hooks.get(name)
            with suppress(IllegalMove, StaleRevision):  # the mayor took it away
                _take_up(chipset, hook)
            time.sleep(STEP)


def _take_up(chipset: Chipset, hook: Hook) -> None:
    """What is on the hook, wherever one of us was killed."""
    if hook.status is Status.PENDING:
        hook = chipset.hooks.activate(hook.agent_id, expect=hook)
    if hook.status is Status.ACTIVE:
        _work(chipset, hook.agent_id, hook.item.bead_id)
    if hook.status is Status.COMPLETED:
        chipset.report(hook.agent_id, "ok")


def _work(chipset: Chipset, name: str, bead: str) -> None:
    assignment: list[Mail] = []

    def arrived() -> bool:
        assignment[:] = [mail for mail in chipset.mail.check_mail(name) if bead in mail.subject]
        return bool(assignment)

    until(arrived)
    for _ in range(5):
        chipset.hooks.touch(name)
        time.sleep(STEP)
    chipset.mail.mark_read(name, assignment[0].filename)
    chipset.report(name, "ok")


def sleeper(state: str, name: str) -> None:
    """Take up what is on the hook, and never move again."""
    chipset = Chipset(state)
    while True:
        if chipset.hooks.get(name).status is Status.PENDING:
            chipset.hooks.activate(name)
        time.sleep(STEP)


def mayor(state: str, *agents: str) -> None:
    """Reads the mail: clears what is done, gives what stalled to the next; ends when all is done or refused."""
    with Chipset(state, patience=SHORT) as chipset:
        text = ""
        while not text:
            for mail in chipset.mail.unread("mayor"):
                try:
                    text = text or _decide(chipset, mail, agents)
                except Busy:  # later
                    continue
                except IllegalMove:  # done before, by one of us who was killed
                    pass
                chipset.mail.mark_read("mayor", mail.filename)
            time.sleep(STEP)
        print(text)


def _decide(chipset: Chipset, mail: Mail, agents: Sequence[str]) -> str:
    if mail.type == "completion_report":
        chipset.mayor().accept(mail.sender)
        return f"accepted from {mail.sender}"
    result = dict(line.split(": ", 1) for line in mail.body.splitlines() if ": " in line)
    following = agents[(agents.index(result["agent"]) + 1) % len(agents)]
    try:
        chipset.mayor().reassign(result["agent"], following, "once more")
    except IllegalMove:
        raise
    except Refused as spent:
        return f"refused: {spent.message}"
    return ""


def witness(state: str, name: str, stall_after: str = "0.4") -> None:
    with Chipset(state) as chipset:
        watching = Witness(chipset, name=name, patience=replace(SHORT, stall_after=float(stall_after)))
        while not Path(state, "stop").exists():
            watching.look()
            time.sleep(STEP)


if __name__ == "__main__":
    roles = {
        each.__name__: each
        for each in (setter, careless, toucher, noter, sender, polecat, sleeper, mayor, witness)
    }
    roles[sys.argv[1]](*sys.argv[2:])

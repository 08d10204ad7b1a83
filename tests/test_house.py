"""Rules of the house that no single room can keep: the door, the weight, the errors, the settings, the shape."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import postroom
from postroom import errors
from postroom.settings import Settings

from .cli.warm import NEED_NANOBOT

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "postroom"
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(postroom.__path__, "postroom.", onerror=str)
    if "demo" not in module.name and not module.name.startswith(NEED_NANOBOT)
)


def error_classes() -> list[type[errors.PostroomError]]:
    found = vars(errors).values()
    return [e for e in found if inspect.isclass(e) and issubclass(e, errors.PostroomError)]


def test_the_public_door_is_pinned() -> None:
    expected = """
        Agent AgentFlow Alert AlertLetter Attempt BackupReport BadStore Batch BoardView Busy Card Carried
        Change Conflict Conversation Copied Cursor Damaged DeadAlertRow DeadCount Deadline DeadlinePassed
        Delivery Diagnosis Draft Entry Escalation Finding Flow Handoff HopsSpent IdTaken IllegalMove
        Imported Invalid Later Lease LeaseLost Letter Level LookAlike LoopDetected Mailbox Message Missing
        NameTaken NoAnswer NotAllowed Part PostroomError Presence Priority QuotaFull Rate Receipt Recipient
        Refusal Refused Resync Room Rung SchemaTooNew Sight StaleRevision Standing State Stats Stop
        StoreBusy StoreFailing Stuck Sweep Tally Task TaskState TaskStatus Template Thread TooFast TooLarge
        Trace Turn Undeliverable UnknownAgent UnknownMessage Unreadable Wait Work __version__ aio copy_room
        data doctor draft event file open reference restore text
    """.split()
    assert expected == sorted(postroom.__all__)


@pytest.mark.parametrize("name", postroom.__all__)
def test_every_name_on_the_door_opens(name: str) -> None:
    assert getattr(postroom, name) is not None


def test_a_name_that_is_not_on_the_door_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        postroom.nonsense  # type: ignore[attr-defined] # noqa: B018


def test_the_version_is_the_packages() -> None:
    assert f'version = "{postroom.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_door_loads_nothing_heavy_before_it_is_used() -> None:
    code = "import sys, postroom; print(*sorted({'msgspec', 'apsw', 'asyncio', 'ctypes'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "" == loaded.stdout.strip()


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__ and len(module.__doc__) > 40


def test_every_error_has_its_own_code_and_stands_in_the_tree() -> None:
    codes = [error.code for error in error_classes()]
    assert len(codes) == len(set(codes))
    for error in error_classes()[1:]:
        assert f"─ {error.__name__} " in (errors.__doc__ or "")
        assert f" {error.code} " in (errors.__doc__ or "")
        assert error.__doc__


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_an_error_tells_field_hint_and_key(error: type[errors.PostroomError]) -> None:
    result = error("went wrong", field="to", hint="mend it")
    result.keys = ("k1",)
    assert "to: went wrong (mend it) [retry with key='k1']" == str(result)
    assert (error.__doc__ or "").strip() == str(error())


def test_a_code_says_whose_fault_it_is_and_whether_to_try_again() -> None:
    fault = {1: "caller", 2: "caller", 3: "house", 4: "caller", 5: "race", 6: "house"}
    for error in error_classes()[1:]:
        assert fault[error.code // 1000] == error.fault
    assert {3000, 3001, 3002, 3003, 3004, 3005, 5002} == {e.code for e in error_classes() if e.temporary}


def test_every_setting_is_used_somewhere_besides_its_definition() -> None:
    texts = [p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.py") if p != SOURCE / "settings.py"]
    unused = [name for name in Settings.__struct_fields__ if not any(f".{name}" in text for text in texts)]
    assert [] == unused


def test_only_one_small_module_reads_the_environment() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.name != "environment.py":
            assert not re.search(r"\benviron\b|\bgetenv\b", path.read_text(encoding="utf-8")), path


def test_only_the_clock_reads_the_time() -> None:
    """Order and leases must not depend on a clock nobody can hand in; waiting may count its own seconds."""
    for path in SOURCE.rglob("*.py"):
        calls = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
        read = {ast.unparse(call.func) for call in calls} & {"datetime.now", "datetime.utcnow", "time.time"}
        assert not read or path.name == "clock.py", path


def test_ci_runs_the_readmes_test_command_and_nothing_else_decides() -> None:
    steps = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if line]
    assert "make test" == steps[-1]


@pytest.mark.parametrize("lost", [r"assert .*\bmonotonic\(\) <=? ?\w*end\b", r"raises\(AssertionError\)"])
def test_no_planted_bug_is_found_by_a_wait_that_took_too_long(lost: str) -> None:
    """A wait that ends is a TimeoutError (`tests.daemons.until`), and whoever expects a complaint says which."""
    pages = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert [] == [path.name for path in pages if re.search(lost, path.read_text(encoding="utf-8"))]

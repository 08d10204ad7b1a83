"""Sessions of scripted hosts: what each host says at each moment, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import postroom
from postroom.hosts.recipes import hooks
from tests.coverage import uncounted
from tests.daemons import until
from tests.hosts.shapes import text_in

HERE = Path(__file__).parent
SOURCE = Path(postroom.__file__).parent.parent
PATIENCE = 20.0  # seconds; a bound, not a pace
PROGRAM = (sys.executable, "-m", "postroom")
NO_BUG = ""
EVENTS = {
    "claude": {"start": "SessionStart", "prompt": "UserPromptSubmit", "tools": "PostToolBatch", "stop": "Stop"},
    "codex": {"start": "SessionStart", "prompt": "UserPromptSubmit", "tools": "PostToolUse", "stop": "Stop"},
    "gemini": {"start": "SessionStart", "prompt": "BeforeAgent", "tools": "AfterTool", "stop": "AfterAgent"},
}


def inputs() -> list[tuple[str, str]]:
    """Every documented input there is: host, and name."""
    return sorted((path.parent.name, path.stem) for path in (HERE / "inputs").rglob("*.json"))


def read_input(host: str, name: str, **changed: Any) -> dict[str, Any]:
    params: dict[str, Any] = json.loads((HERE / "inputs" / host / f"{name}.json").read_text(encoding="utf-8"))
    return params | changed


class Place:
    """A user's home with a project and a room of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.project = folder / "shop"
        self.project.mkdir()
        mine = ("POSTROOM_", "INBOX_", "XDG_", "CLAUDE", "CODEX_", "GEMINI_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(mine)}
        self.environment = uncounted(kept) | {
            "HOME": str(folder),
            "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE.parent.parent}",
            "PYTHONPYCACHEPREFIX": str(folder.parent / "pycache"),
            "POSTROOM_STORE": str(folder / "room.db"),
            "POSTROOM_HOOK_SECONDS": "30",  # a busy machine is not the point
            "POSTROOM_DURABILITY": "process",
            "POSTROOM_RING_GATHER": "0",
            "POSTROOM_RING_COOLDOWN": "0",
            "CLAUDE_CODE_ENTRYPOINT": "cli",
        }

    def room(self) -> postroom.Room:
        return postroom.open(self.home / "room.db", durability="process")

    def post(self, to: str, body: str, **fields: Any) -> str:
        with self.room() as room:
            return room.mailbox("ann").send(to, body, **fields).id


class Host:
    """One process of a host, with one session in it, unless another is begun."""

    def __init__(self, place: Place, name: str = "claude", *options: str, bug: str = NO_BUG) -> None:
        self.place = place
        self.name = name
        self.session = str(uuid.uuid4())
        self.rings: list[str] = []  # what it was woken with
        self.prompts: list[str] = []  # what its model was told, in order
        self.ends: list[int] = []  # how waiters ended that woke nobody
        self._options = options
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "scripted_host.py"), bug],
            env=place.environment,
            cwd=place.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    # -- moments

    def start(self, source: str = "startup") -> str:
        message = self.hook("start", source=source)
        self.arm("start", source=source)
        return message

    def prompt(self, text: str = "Sort the list.") -> str:
        """A waiter is started beside it, where the host does."""
        message = self.hook("prompt", prompt=text)
        self.arm("prompt", prompt=text)
        return message

    def tools(self) -> str:
        return self.hook("tools")

    def stop(self) -> str:
        """What lets the turn go on; a waiter is started beside it, as hosts do."""
        message = self.hook("stop")
        self.arm("stop")
        return message

    def end(self, reason: str = "prompt_input_exit") -> None:
        self.call("SessionEnd", reason=reason)

    def hook(self, moment: str, **fields: Any) -> str:
        event = EVENTS[self.name][moment]
        done = self.call(event, **fields)
        text = text_in(self.name, event, done["out"])
        self.prompts += [text] if text else []
        return text

    def at_once(self, moment: str, many: int) -> list[dict[str, Any]]:
        """Call so many hooks without waiting for one another; what each answered."""
        params = {"hook": self._words(), "stdin": self._said(EVENTS[self.name][moment]), "beside": True}
        pids = {self._say(params)["pid"] for _ in range(many)}
        found: list[dict[str, Any]] = []

        def all_ended() -> bool:
            found.extend(one for one in self._say({"beside": True})["ended"] if one["pid"] in pids)
            return len(found) >= many

        until(all_ended)
        assert all((0, "") == (one["code"], one["err"]) for one in found), found
        return found

    def call(self, event: str, **fields: Any) -> dict[str, Any]:
        """Call the hook; it went well."""
        done = self._say({"hook": self._words(), "stdin": self._said(event, **fields)})
        assert (0, "") == (done["code"], done["err"]), done
        return done

    def arm(self, moment: str, **fields: Any) -> None:
        """Start what the recipe starts beside the hook."""
        event = EVENTS[self.name][moment]
        if any(
            "asyncRewake" in one or "async" in one for one in hooks(self.name, ["postroom"])[event][0]["hooks"]
        ):
            words = [*self._words(), "--wait", "--timeout", "60s"]
            self._say({"hook": words, "stdin": self._said(event, **fields), "beside": True})

    # -- rings

    def hear(self) -> int:
        """How often it was woken so far; Claude Code is woken by a waiter that ends with 2."""
        self.waiters()
        return len(self.rings)

    def wait_for_rings(self, many: int) -> None:
        until(lambda: self.hear() >= many, show=lambda: f"rung {len(self.rings)} times")

    def waiters(self) -> list[int]:
        """Return the pids of the waiters that live, and note how the others ended."""
        found = self._say({"beside": True})
        for one in found["ended"]:
            assert "" == one["out"]
            if one["code"] == 2:
                self.rings.append(one["err"])
            else:
                assert "" == one["err"], one
                self.ends.append(one["code"])
        live: list[int] = found["live"]
        return live

    def run(self, *words: str) -> dict[str, Any]:
        """Any other program that is started in the session."""
        return self._say({"run": words})

    def armed(self) -> int:
        """How many of them have found themselves alone, and watch their host besides."""
        return sum(_threads(pid) > 1 for pid in self.waiters())

    def wait_for_armed(self, many: int) -> None:
        until(lambda: self.armed() == many, show=lambda: f"{self.armed()} wait")

    # -- the process

    def _words(self) -> list[str]:
        return ["hook", self.name, *self._options]

    def _said(self, event: str, **fields: Any) -> str:
        about = {"session_id": self.session, "transcript_path": None, "cwd": str(self.place.project)}
        return json.dumps(about | {"hook_event_name": event} | fields)

    def _say(self, params: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(params) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def die(self) -> None:
        """As by kill -9: its children are not told."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            with suppress(BrokenPipeError):
                self._process.communicate(timeout=PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def _threads(pid: int) -> int:
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        return int(status.partition("Threads:")[2].split()[0])
    return 0


def name_of(host: Host) -> str:
    path = host.place.home / ".local/state/postroom/sessions" / f"{host.name}-{host.session}.json"
    name: str = json.loads(path.read_text(encoding="utf-8"))["agent"]
    return name

"""A demonstration: agents in separate processes mail each other, and print what they do (`make demo`).

Every agent below is a process of its own. They share nothing but the room's file, and no server runs; in the last
scene two servers carry letters between systems.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import postroom

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from postroom import Letter, Mailbox, Work


TEAM = "demo"
PATIENCE = 30.0  # seconds an agent of the demo waits for mail
_COLOURS = {
    "planner": 35,
    "coder": 36,
    "researcher": 33,
    "reviewer": 32,
    "worker": 34,
    "postroom": 37,
    "polecat": 31,
}


def say(who: str, what: str) -> None:
    name = f"{who:>10}"
    if sys.stdout.isatty():
        name = f"\033[{_COLOURS.get(who, 37)}m{name}\033[0m"
    print(f"{name}  {what}", flush=True)


def hear(me: Mailbox, who: str, where: str = "", after: str = "") -> Letter:
    """Wait for a letter, say what it says, and acknowledge it."""
    letter = me.wait(PATIENCE)
    if letter is None:
        raise SystemExit(f"{who} got no letter")
    say(who, f"{where}← {letter.sender}: “{letter.text}”{after}")
    letter.ack()
    return letter


def serve_one(me: Mailbox, handler: Callable[[Work], str | None], kinds: tuple[str, ...] = ()) -> None:
    """Serve one letter: it is acknowledged when the handler returns, with the answer in the same commit."""

    def handle(work: Work) -> str | None:
        me.stop()
        return handler(work)

    me.serve(handle, timeout=PATIENCE, kinds=kinds)


# -- the agents


def planner(me: Mailbox) -> None:
    request = "Sort ten million rows, keep equal rows in order."
    say("planner", f"→ coder: “{request}” (high priority)")
    answer = me.ask("coder", request, subject="Sorting", priority="high", timeout=PATIENCE)
    say("planner", f"← {answer.sender}: “{answer.text}”")
    same = "the same" if answer.thread == answer.message.in_reply_to else "another"
    say("planner", f"  the answer came back in {same} thread, as {answer.subject!r}")
    hear(me, "planner", after=" (to everyone)")


def coder(me: Mailbox) -> None:
    def sort(work: Work) -> str:
        say("coder", f"claims “{work.subject}”: nobody else gets it for a minute")
        say("coder", "→ researcher: “Which sort is stable?”")
        fact = me.ask("researcher", "Which sort is stable?", subject="A question", timeout=PATIENCE)
        say("coder", f"← {fact.sender}: “{fact.text}”")
        say("coder", "acknowledges and answers the planner, in one commit")
        return "Done, with a merge sort."

    serve_one(me, sort, kinds=("request",))
    say("coder", "⇒ reviewer: hands the work over, with its whole context")
    work = postroom.Handoff(
        work_completed="Merge sort written and measured.",
        files_created=("sort.py", "test_sort.py"),
        current_state="All tests pass.",
        next_steps=("Review sort.py", "Merge it"),
    )
    me.handoff("reviewer", work, subject="Review the sort")


def researcher(me: Mailbox) -> None:
    def answer(question: Work) -> str:
        say("researcher", f"← {question.sender}: “{question.text}”")
        return "Merge sort is stable."

    serve_one(me, answer)


def reviewer(me: Mailbox) -> None:
    def take_over(work: Work) -> None:
        context = work.message.context or {}
        say("reviewer", f"takes over from {work.sender}: {context['work_completed']}")
        for step in context["next_steps"]:
            say("reviewer", f"  next: {step}")

    serve_one(me, take_over, kinds=("handoff",))
    say("reviewer", f"⇒ everyone in {TEAM!r}: “The sort is merged.”")
    me.broadcast(TEAM, "The sort is merged.", subject="Merged")


def worker(me: Mailbox) -> None:
    """Claim a letter and hang, until the demo kills this process."""
    work = me.claim(timeout=PATIENCE, lease=2)
    if work is not None:
        say("worker", f"claims “{work.text}” and starts to work …")
        time.sleep(60)


def successor(me: Mailbox) -> None:
    def finish(work: Work) -> None:
        say("worker", f"a new one gets “{work.text}” (try {work.delivery.attempts + 1}) and finishes it")

    serve_one(me, finish)


def polecat(me: Mailbox) -> None:
    say("polecat", "(a chipset's mail folder) → researcher@nanobot: “Which sort is stable? Tell planner@moon.”")
    me.send("researcher@nanobot", "Which sort is stable? Tell planner@moon.", subject="A question")


def bot(me: Mailbox) -> None:
    hear(me, "researcher", "(nanobot's mail folder) ")
    me.send("planner@moon", "Merge sort is stable.", subject="The answer")


def on_the_moon(me: Mailbox) -> None:
    hear(me, "planner", "(another Postroom, “moon”) ")


AGENTS: dict[str, Callable[[Mailbox], None]] = {
    agent.__name__: agent
    for agent in (planner, coder, researcher, reviewer, worker, successor, polecat, bot, on_the_moon)
}


# -- the scenes


def team_scene(room: postroom.Room) -> None:
    """Show four agents with a question and a handoff."""
    team = ("planner", "coder", "researcher", "reviewer")
    for name in team:
        room.mailbox(name).register(scopes=[TEAM], description=f"the {name} of the demo")
    finish([start(room, name) for name in team])


def crash_scene(room: postroom.Room) -> None:
    """Show that the letter of a killed worker goes to the next one."""
    print("\nA worker is killed (kill -9) in the middle of its work:\n")
    room.mailbox("planner").send("worker", "index the archive")
    victim = start(room, "worker")
    box = room.mailbox("worker")
    while box.counts()["total"]:
        time.sleep(0.05)
    time.sleep(0.5)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    say("postroom", "the worker is dead; its lease runs out in two seconds")
    finish([start(room, "successor", mailbox="worker")])


def dead_letter_scene(room: postroom.Room) -> None:
    """Show that the sender gets a notice when a letter is rejected."""
    print("\nA letter nobody can handle is not lost either:\n")
    room.mailbox("planner").send("worker", "divide by zero", subject="Impossible")
    letter = room.mailbox("worker").claim(timeout=1)
    if letter is not None:
        letter.reject("cannot be done")
        say("worker", f"rejects {letter.subject!r}")
    hear(room.mailbox("planner"), "planner")


def worlds_scene(room: postroom.Room) -> None:
    """Show two mounted mail folders of other designs, and a second Postroom that is linked."""
    if find_spec("websockets") is None or find_spec("uvicorn") is None:
        return  # a link needs the extra `serve`
    print("\nThree worlds: folders of two other designs, and a second Postroom, each a system:\n", flush=True)
    folder = Path(room.settings.store.removeprefix("sqlite:")).with_name("demo-worlds")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    places = {name: f"sqlite:{folder / name}.db" for name in ("home", "moon")}
    places |= {name: f"files:{folder / name}?layout={name}" for name in ("chipset", "nanobot")}
    with ExitStack() as stack:
        worlds = {name: stack.enter_context(postroom.open(place)) for name, place in places.items()}
        worlds["nanobot"].mailbox("researcher").register()
        worlds["moon"].mailbox("planner").register()
        _link(stack, places)
        finish(
            [
                start(worlds["chipset"], "polecat"),
                start(worlds["nanobot"], "bot", "researcher"),
                start(worlds["moon"], "on_the_moon", "planner"),
            ]
        )


def _link(stack: ExitStack, places: Mapping[str, str]) -> None:
    """Mount the folders at home, and link the moon to home, which relays for them."""
    for name in ("chipset", "nanobot"):
        say("postroom", f"postroom mount 'files:…/{name}?layout={name}' --as {name}")
        _run(places, "home", "mount", places[name], "--as", name)
    say("postroom", "postroom peers invite moon; and there: postroom peers join")
    sockets = stack.enter_context(TemporaryDirectory(prefix="postroom-"))  # a socket's path must be short
    _serve(stack, places, sockets, "home", "127.0.0.1:0")
    while not all(_run(places, name, "peers")["peers"] for name in ("chipset", "nanobot")):
        time.sleep(0.05)  # until the folders are mounted
    invitation = _run(places, "home", "peers", "invite", "moon")["invitation"]
    _run(places, "moon", "peers", "join", text=invitation)
    _run(places, "moon", "peers", "add", "home", "--relays-for", "chipset", "--relays-for", "nanobot")
    _serve(stack, places, sockets, "moon", "off")


def _command(places: Mapping[str, str], name: str, *words: str) -> list[str]:
    room = ["--room", places[name], "--set", f"system={name}", "--json"]
    return [sys.executable, "-m", "postroom", *words, *room]


def _run(places: Mapping[str, str], name: str, *words: str, text: str = "") -> dict[str, Any]:
    """Run a command in one of the rooms and return its answer."""
    done = subprocess.run(_command(places, name, *words), input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _serve(stack: ExitStack, places: Mapping[str, str], sockets: str, name: str, http: str) -> None:
    """Serve one of the rooms until the scene is over; return once it listens."""
    words = ["serve", "--http", http, "--socket", f"{sockets}/{name}.sock"]
    server = stack.enter_context(
        subprocess.Popen(_command(places, name, *words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    )
    stack.callback(server.terminate)
    if server.stdout is None or not server.stdout.readline():
        raise SystemExit("the post room of the demo did not start")


def start(room: postroom.Room, agent: str, mailbox: str | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--agent", agent, "--mailbox", mailbox or agent]
    return subprocess.Popen([*command, "--room", room.settings.store])


def finish(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    if any(code != 0 for code in [process.wait() for process in processes]):
        raise SystemExit("an agent of the demo failed")


def fresh_room() -> postroom.Room:
    """Return the demo's own room, empty."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    path = Path(data, "postroom", "demo.db")
    for old in path.parent.glob("demo.db*") if path.parent.is_dir() else ():
        if old.is_file():
            old.unlink()
    return postroom.open(f"sqlite:{path}")


def farewell(room: postroom.Room, *, more: bool) -> None:
    letters = sum(conversation.turns for conversation in room.conversations())
    path = room.settings.store.removeprefix("sqlite:")
    print(f"\n{letters} letters are on disk in\n{path}.\n\nType next:\n")
    print(f'  export PATH="{Path(sys.executable).parent}:$PATH"')
    print(f"  postroom search after:1d --everyone --room {path}")
    print("  postroom send you --as me --body hello")
    print("  postroom check --as you\n")
    also = " `make demo` shows a crash, a dead letter and three worlds too." if more else ""
    print(f"and read docs/quick-start.md.{also}")


def show(scenes: Sequence[Callable[[postroom.Room], None]]) -> None:
    print("Four agents, four processes, one file, no server:\n", flush=True)
    with fresh_room() as room:
        for scene in scenes:
            scene(room)
        farewell(room, more=len(scenes) == 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python examples/demo.py", description=__doc__)
    parser.add_argument("--slow", action="store_true", help="also a crash and a dead letter")
    parser.add_argument("--agent", choices=sorted(AGENTS), help=argparse.SUPPRESS)
    parser.add_argument("--mailbox", help=argparse.SUPPRESS)
    parser.add_argument("--room", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.agent:
        with postroom.open(chosen.room) as room:
            AGENTS[chosen.agent](room.mailbox(chosen.mailbox))
        return
    show([team_scene, crash_scene, dead_letter_scene, worlds_scene] if chosen.slow else [team_scene])


if __name__ == "__main__":
    main()

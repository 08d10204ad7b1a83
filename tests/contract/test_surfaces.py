"""One script, told through every surface: what comes back is the same, field by field.

A surface that is added later implements `Surface` and joins `SURFACES`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import PostroomError
from tests.contract.surfaces import SURFACES, Library, Surface, without

# -- the script


def transcript(surface: Surface) -> Iterator[Any]:
    """Everything that was answered, in order."""
    yield surface.register("coder", "team", "python")
    yield surface.register("tester", "team", "pytest")
    yield surface.agents()
    first = surface.send(
        "coder", ["tester", "archive"], "Please test.", subject="Tests", priority="high", tags=["a"]
    )
    yield first
    yield surface.send("coder", ["tester"], "again", key="k-1")
    yield surface.send("coder", ["tester"], "again", key="k-1")
    yield surface.counts("tester")
    yield surface.check("tester", peek=True)
    yield surface.check("tester")
    yield surface.check("tester")
    yield surface.check("tester", everything=True)
    yield surface.read("tester", first["id"])
    yield surface.reply("tester", first["id"], "They pass.")
    yield surface.send("archive", None, "Kept.", in_reply_to=first["id"])
    yield surface.wait("coder")
    yield surface.check("coder")
    yield surface.thread("coder", first["id"])
    yield surface.forward("tester", first["id"], "boss")
    yield surface.broadcast("boss", "team", "Well done.")
    yield surface.handoff("coder", "tester", "All of it.")
    yield surface.counts("tester")
    held = surface.claim("tester", 10)
    yield [without(work, "token") for work in held]
    one, two, *others = held
    yield surface.ack("tester", one["id"], one["token"], "done")
    yield surface.ack("tester", one["id"], one["token"])
    yield surface.fail("tester", two["id"], two["token"], "no luck")
    yield [surface.release("tester", other["id"], other["token"]) for other in others]
    yield surface.claim("nobody", 1)
    yield surface.reject("tester", others[0]["id"], "not mine")
    yield surface.dead("tester")
    yield surface.revive("tester", others[0]["id"])
    yield surface.ack("tester", others[0]["id"], None)
    sent = [surface.send("boss", ["archive"], body)["id"] for body in ("one", "two", "three")]
    yield surface.ack_all("archive", sent[:2], None)
    yield surface.check("tester", everything=True)
    yield surface.check("coder")
    yield from actions_of(surface)
    yield surface.stats("tester")
    yield surface.stats("archive")
    yield surface.room_stats()
    yield surface.trace("coder", first["id"])
    yield surface.trace("tester", first["id"])
    yield surface.is_healthy()
    yield from mistakes(surface, first["id"])


def actions_of(surface: Surface) -> Iterator[Any]:
    """What was found, given, asked for, taken back."""
    yield surface.search("coder", "please test")
    yield surface.search("boss", '"well done" -test')
    yield surface.search("tester", "from:coder tag:a")
    yield surface.sent("coder")
    yield surface.sent("nobody")
    task = surface.give_task("coder", "tester", "Test more.", subject="More", session={"chat": 7})
    yield task
    for me, verb, message in (
        ("tester", "accept", None), ("tester", "start", None), ("tester", "ask", "What?"),
        ("coder", "answer", "All."), ("tester", "complete", "Done."),
    ):  # fmt: skip
        yield surface.step(me, verb, task["id"], message)
    other = surface.give_task("coder", "tester", "And more.")
    yield other
    yield surface.step("tester", "reject", other["id"], "no time")
    yield surface.tasks("coder", "given")
    yield surface.tasks("coder", "received")
    request = surface.escalate("coder", "blocked", "No access.", ["boss", "human"])
    yield request
    yield surface.escalations("ceo")
    yield surface.escalations("boss")
    yield surface.reply("boss", request["id"], "Granted.")
    yield surface.escalations("coder")
    again = surface.escalate("coder", "unsure", "Really?", ["chief"])
    yield again
    yield surface.waiting("chief")
    yield surface.board("coder")
    (open_one,) = surface.escalations("coder")
    yield surface.resolve("chief", open_one["escalation"])
    yield surface.escalations("coder", open_only=False)
    yield surface.unsend("coder", again["id"])
    yield surface.check("chief", everything=True)
    yield surface.save_template("review", "Review {file}", "Look at {file}.")
    yield surface.send_template("coder", "any:pytest", "review", {"file": "sort.py"})
    yield surface.block("tester", "spammer")
    yield surface.send("coder", ["boss"], "Thanks.")
    yield surface.check("boss")
    yield surface.sent("boss")


def mistakes(surface: Surface, id: str) -> Iterator[Any]:
    """What is refused is refused in the same words."""
    attempts: list[Callable[[], Any]] = [
        lambda: surface.send("coder", ["no one"], "x"),
        lambda: surface.send("coder", ["Tester"], "x"),
        lambda: surface.send("stranger", None, "x", in_reply_to=id),
        lambda: surface.send("coder", ["tester"], "other", key="k-1"),
        lambda: surface.read("stranger", id),
        lambda: surface.ack("tester", id, "guess"),
        lambda: surface.forward("tester", id, "coder"),
        lambda: surface.broadcast("coder", "nowhere", "x"),
        lambda: surface.revive("tester", "m-0"),
        lambda: surface.check("Coder"),
        lambda: surface.search("coder", "form:ann"),
        lambda: surface.step("tester", "complete", id),
        lambda: surface.step("coder", "start", surface.tasks("coder", "given")[0]["id"]),
        lambda: surface.escalate("coder", "two words", "x", ["human"]),
        lambda: surface.resolve("coder", "ESC-0"),
        lambda: surface.save_template("x", "", "{"),
        lambda: surface.send_template("coder", "tester", "review", {}),
        lambda: surface.unsend("tester", id),
        lambda: surface.send("spammer", ["tester"], "x"),
        lambda: surface.trace("stranger", id),
        lambda: surface.stats("Coder"),
    ]
    for attempt in attempts:
        try:
            yield attempt()
        except PostroomError as refused:
            yield {"refused": type(refused).__name__, "field": refused.field}


def comparable(results: list[Any]) -> list[Any]:
    """Ids and tokens are random, and so are the names of escalations, made of ids; each becomes the place of its
    first appearance.
    """
    text = json.dumps(results)
    for number, id in enumerate(dict.fromkeys(_ids(results))):
        text = text.replace(id, f"letter-{number}")
    plain: list[Any] = json.loads(text)
    return [_without_lease_key(entry) for entry in plain]


def _ids(result: Any) -> Iterator[str]:
    if isinstance(result, dict):
        if "id" in result and "sender" in result:
            yield result["id"]
        if "escalation" in result:
            yield result["escalation"]
        result = list(result.values())
    if isinstance(result, list):
        for entry in result:
            yield from _ids(entry)


def _without_lease_key(result: Any) -> Any:
    """The key of an answer that came with an ack holds the token."""
    if isinstance(result, dict):
        return {
            name: "ack" if name == "key" and str(value).startswith("ack-") else _without_lease_key(value)
            for name, value in result.items()
        }
    return [_without_lease_key(entry) for entry in result] if isinstance(result, list) else result


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return comparable(list(transcript(Library(tmp_path_factory.mktemp("library")))))


def test_the_script_says_something(expected: list[Any]) -> None:
    refused = [entry["refused"] for entry in expected if isinstance(entry, dict) and "refused" in entry]
    assert refused == [
        "Invalid", "LookAlike", "UnknownMessage", "IdTaken", "UnknownMessage", "LeaseLost", "LoopDetected",
        "UnknownAgent", "UnknownMessage", "LookAlike", "Invalid", "UnknownMessage", "IllegalMove", "Invalid",
        "Missing", "Invalid", "Invalid", "UnknownMessage", "NotAllowed", "UnknownMessage", "LookAlike",
    ]  # fmt: skip
    assert len(expected) == 94


@pytest.mark.parametrize("name", [name for name in SURFACES if name != "library"])
def test_every_surface_tells_the_same(name: str, expected: list[Any], tmp_path: Path) -> None:
    result = comparable(list(transcript(SURFACES[name](tmp_path))))
    for number, (theirs, ours) in enumerate(zip(result, expected, strict=True)):
        assert ours == theirs, number


def test_a_surface_that_tells_otherwise_is_found(expected: list[Any], tmp_path: Path) -> None:
    class Forgetful(Library):
        def counts(self, me: str) -> dict[str, int]:
            return super().counts(me) | {"total": 0}

    assert comparable(list(transcript(Forgetful(tmp_path)))) != expected

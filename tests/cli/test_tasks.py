"""Tasks by commands: every step of the library's, told to the other party, refused where the table says no."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.cli.shell import PROGRAM, Desk
from tests.cli.terminal import editor, show


def give(desk: Desk, *more: str, id: str = "t-1") -> Any:
    words = ("tasks", "give", "bob", "--as", "ann", "--body", "Review it.", "-s", "Review", "--letter-id", id)
    return desk.json(*words, *more)


def step(desk: Desk, verb: str, *more: str, me: str = "bob", id: str = "t-1") -> str:
    state: str = desk.json("tasks", verb, id, "--as", me, *more)["task"]["state"]
    return state


def states(desk: Desk, *words: str) -> list[tuple[str, str]]:
    return [(task["id"], task["state"]) for task in desk.json("tasks", *words)["tasks"]]


def test_a_task_goes_its_whole_way(desk: Desk) -> None:
    value = give(desk, "--deadline", "2h", "--session", '{"chat": 7}')
    assert (value["id"], value["letter"]["kind"], value["letter"]["task"]["state"]) == ("t-1", "task", "pending")
    result = desk.json("tasks", "accept", "t-1", "--as", "bob", "--body", "Gladly.")
    assert (result["task"]["state"], result["receipt"]["letter"]["text"]) == ("accepted", "Gladly.")
    assert desk.json("check", "--as", "bob", "--all")["letters"] == []  # taken on, so acknowledged
    assert step(desk, "start") == "working"
    assert step(desk, "ask", "--body", "Which branch?") == "input_required"
    assert step(desk, "answer", "--body", "main", me="ann") == "working"
    assert step(desk, "complete", "--body", "Fine.", "--data", '{"bugs": 0}') == "completed"
    shown = desk.json("tasks", "show", "t-1", "--as", "ann")
    task = shown["task"]
    assert (task["giver"], task["receiver"], task["subject"], task["is_final"]) == ("ann", "bob", "Review", True)
    assert (task["session"], task["called"], task["thread"]) == ({"chat": 7}, "t-1", "t-1")
    assert task["deadline"] > task["opened_at"]
    texts = [letter["text"] for letter in shown["letters"]]
    assert texts == ["Review it.", "Gladly.", "working", "Which branch?", "main", "Fine."]
    assert desk.json("tasks", "show", "t-1", "--as", "bob")["task"]["session"] is None


def test_a_task_is_rejected_failed_or_canceled_with_a_reason(desk: Desk) -> None:
    for id in ("t-1", "t-2", "t-3"):
        give(desk, id=id)
    assert step(desk, "reject", "--reason", "no time") == "rejected"
    assert step(desk, "accept", id="t-2") == "accepted"
    assert step(desk, "fail", "--reason", "broken", id="t-2") == "failed"
    assert step(desk, "accept", id="t-3") == "accepted"
    canceled = desk.json("tasks", "cancel", "t-3", "--as", "ann", "--reason", "never mind")["task"]
    assert (canceled["state"], canceled["reason"]) == ("canceled", "never mind")


def test_tasks_are_listed_by_side_and_state(desk: Desk) -> None:
    for id in ("t-1", "t-2"):
        give(desk, id=id)
    step(desk, "reject", "--reason", "no")
    assert states(desk, "--as", "ann") == [("t-1", "rejected"), ("t-2", "pending")]
    assert states(desk, "--as", "bob", "--open") == [("t-2", "pending")]
    assert states(desk, "--as", "bob", "--state", "rejected", "--state", "failed") == [("t-1", "rejected")]
    assert states(desk, "--as", "bob", "--role", "given") == []
    assert states(desk, "--as", "bob", "--role", "received", "-n", "1") == [("t-1", "rejected")]
    assert desk.run("tasks", "--as", "bob", "--open", "--state", "failed").code == 64
    assert desk.run("tasks", "--as", "carol").out == "No tasks.\n"


def test_the_rules_or_a_program_judge_a_task(desk: Desk) -> None:
    desk.json("register", "--as", "bob", "--max-tasks", "1", "--capability", "python")
    for id in ("t-1", "t-2"):
        give(desk, id=id)
    give(desk, "--metadata", '{"required_capabilities": ["rust"]}', id="t-3")
    judge = "import json, sys; asked = json.load(sys.stdin); assert asked['card']['id'] == 'bob'; print(asked['letter']['text'])"
    no = f'{sys.executable} -c "{judge}; sys.exit(3)"'
    result = desk.json("tasks", "admit", "t-1", "--as", "bob", "--judge", no)
    assert (result["accepted"], result["task"]["state"], result["task"]["reason"]) == (
        False,
        "rejected",
        "Review it.",
    )
    assert desk.json("tasks", "admit", "t-3", "--as", "bob")["accepted"] is False
    assert desk.json("tasks", "admit", "t-2", "--as", "bob", "--judge", "true")["accepted"] is True
    give(desk, id="t-4")
    full = desk.run("tasks", "accept", "t-4", "--as", "bob", "--json")
    assert (full.code, full.error["name"]) == (75, "QuotaFull")


def test_a_judge_that_cannot_be_started_decides_nothing(desk: Desk) -> None:
    give(desk)
    for program in ("/no/such/program", "", "'"):
        refused = desk.run("tasks", "admit", "t-1", "--as", "bob", "--judge", program, "--json")
        assert (refused.code, refused.error["field"]) == (64, "--judge")
    assert states(desk, "--as", "bob") == [("t-1", "pending")]


def test_a_held_task_is_moved_with_its_token_alone(desk: Desk) -> None:
    give(desk)
    (held,) = desk.json("claim", "--as", "bob")["letters"]
    assert desk.run("tasks", "accept", "t-1", "--as", "bob").code == 69
    assert step(desk, "accept", "--token", held["token"], "--no-ack") == "accepted"
    assert desk.json("read", "t-1", "--as", "bob")["letter"]["delivery"]["state"] == "claimed"
    assert step(desk, "complete", "--token", held["token"]) == "completed"
    assert desk.json("check", "--as", "bob", "--all")["letters"] == []


def test_a_program_that_works_on_a_task_needs_to_say_no_token(desk: Desk) -> None:
    give(desk)
    program = (
        "import os, subprocess, sys; run = lambda verb: subprocess.call([*sys.argv[1:], 'tasks', verb,"
        " os.environ['POSTROOM_ID'], '--json'], stdout=subprocess.DEVNULL);"
        " sys.exit(run('accept') or run('complete'))"
    )
    done = desk.run("work", "--as", "bob", "--timeout", "1", "--", sys.executable, "-c", program, *PROGRAM)
    assert (done.code, done.err) == (0, "")
    assert states(desk, "--as", "ann") == [("t-1", "completed")]


@pytest.mark.parametrize(
    ("words", "code", "field"),
    [
        (("tasks", "complete", "t-1", "--as", "bob"), 77, ""),
        (("tasks", "accept", "t-1", "--as", "ann"), 77, "id"),
        (("tasks", "accept", "t-1", "--as", "carol"), 67, "id"),
        (("tasks", "show", "m-0", "--as", "bob"), 67, "id"),
        (("tasks", "show", "a b", "--as", "bob"), 65, "id"),
        (("tasks", "give", "a", "--as", "ann", "--body", "x", "--deadline", "0s"), 77, "deadline"),
        (("tasks", "give", "a", "--as", "ann", "--body", "x", "--session", "[1]"), 65, "session"),
        (("tasks", "give", "broadcast:team", "--as", "ann", "--body", "x"), 67, "to"),
        (("tasks", "give", "a", "--as", "ann", "--body", "x", "--kind", "y"), 64, "--kind"),
        (("tasks", "ask", "t-1", "--as", "bob"), 65, "body"),
        (("tasks", "reject", "t-1", "--as", "bob"), 64, "--reason"),
        (("tasks", "--as", "bob", "--state", "done"), 64, "--state"),
        (("tasks", "--as", "bob", "--limit", "0"), 65, "limit"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_a_step_that_cannot_be_is_refused_and_nothing_is_told(
    desk: Desk, words: tuple[str, ...], code: int, field: str
) -> None:
    give(desk)
    refused = desk.run(*words, "--json")
    assert (refused.code, refused.error["field"] or "") == (code, field), refused
    assert states(desk, "--as", "ann") == [("t-1", "pending")]
    assert desk.json("counts", "--as", "ann")["total"] == 0


def test_the_same_key_gives_one_task(desk: Desk) -> None:
    words = ("tasks", "give", "bob", "--as", "ann", "--body", "x", "--key", "k-1")
    first, again = desk.json(*words), desk.json(*words)
    assert (again["id"], again["repeated"]) == (first["id"], True)
    assert len(states(desk, "--as", "bob")) == 1


def test_people_see_tasks_and_what_agents_work_on(desk: Desk) -> None:
    desk.json("register", "--as", "bob")
    code, shown = show(
        desk, "tasks", "give", "bob", "--as", "ann", "-s", "Review", VISUAL=editor(desk.home, "Do it.")
    )
    assert (code, "tells how it stands" in shown) == (0, True)
    ((id, _),) = states(desk, "--as", "ann")
    assert "STATE" in show(desk, "tasks", "--as", "ann", columns=140)[1]
    assert "accepted" in show(desk, "tasks", "accept", id, "--as", "bob")[1]
    assert "Do it." in show(desk, "tasks", "show", id, "--as", "ann", columns=140)[1]
    assert "Review" in show(desk, "agents", columns=140)[1]
    assert "Works on" in show(desk, "agents", "show", "bob")[1]
    (agent,) = desk.json("agents")["agents"]
    assert agent["tasks"] == [{"id": id, "subject": "Review", "state": "accepted", "giver": "ann"}]
    assert json.loads(desk.run("agents", "--gone", "--json").out)["agents"] == [agent]


def refused(desk: Desk, verb: str, *more: str, me: str = "bob") -> tuple[str, str | None]:
    error = desk.run("tasks", verb, "t-1", "--as", me, *more, "--json").error
    return error["message"], error["hint"]


def test_a_step_that_cannot_be_is_refused_with_what_can_be_typed(desk: Desk) -> None:
    give(desk)
    message, hint = refused(desk, "cancel", me="ann")
    assert message == "a task that is pending cannot become canceled"
    assert hint is not None and hint.startswith("postroom unsend t-1 takes it back until it is claimed")
    assert refused(desk, "complete")[1] == "from here: postroom tasks accept, reject"
    assert refused(desk, "answer", "--body", "x", me="ann")[0] == "nobody asked anything: the task is pending"
    step(desk, "accept")
    assert refused(desk, "ask", "--body", "x")[1] == "first say that you work on it: postroom tasks start t-1"
    assert refused(desk, "accept")[1] == "from here: postroom tasks start, complete, fail, reject"
    assert refused(desk, "answer", "--body", "x", me="ann")[0] == "nobody asked anything: the task is accepted"
    step(desk, "start")
    step(desk, "ask", "--body", "x")
    assert refused(desk, "cancel", me="ann")[1] == "from here: postroom tasks answer"
    step(desk, "answer", "--body", "y", me="ann")
    step(desk, "complete")
    assert refused(desk, "start")[1] == "legal from here: none, it is final"


def test_who_holds_a_task_is_told_to_give_the_token(desk: Desk) -> None:
    give(desk)
    desk.json("claim", "--as", "bob")
    for verb in ("accept", "admit"):
        message, hint = refused(desk, verb)
        assert "is held by bob" in message
        assert hint == "give the --token that claim showed, or wait until its lease ends"


def test_a_task_that_is_overdue_says_for_how_long(desk: Desk) -> None:
    with desk.room() as room:
        room.mailbox("ann").give_task("bob", "x", id="t-1", deadline=0.001)
        room.mailbox("ann").give_task("bob", "x", id="t-2", deadline=3600.0)
    shown = desk.run("tasks", "--as", "ann").out
    assert " s overdue |" in shown and "in 60 min" in shown
    desk.json("tasks", "reject", "t-1", "--as", "bob", "--reason", "late")
    assert "overdue" not in desk.run("tasks", "--as", "ann").out  # it is over

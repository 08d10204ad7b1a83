"""Tasks by commands: every step of the library's, told to the other party, refused where the table says no."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.cli.shell import PROGRAM, Shell
from tests.cli.terminal import editor, show


def give(shell: Shell, *more: str, id: str = "t-1") -> Any:
    words = ("tasks", "give", "bob", "--as", "ann", "--body", "Review it.", "-s", "Review", "--letter-id", id)
    return shell.json(*words, *more)


def step(shell: Shell, verb: str, *more: str, me: str = "bob", id: str = "t-1") -> str:
    state: str = shell.json("tasks", verb, id, "--as", me, *more)["task"]["state"]
    return state


def states(shell: Shell, *words: str) -> list[tuple[str, str]]:
    return [(task["id"], task["state"]) for task in shell.json("tasks", *words)["tasks"]]


def test_a_task_goes_its_whole_way(shell: Shell) -> None:
    value = give(shell, "--deadline", "2h", "--session", '{"chat": 7}')
    assert (value["id"], value["letter"]["kind"], value["letter"]["task"]["state"]) == ("t-1", "task", "pending")
    result = shell.json("tasks", "accept", "t-1", "--as", "bob", "--body", "Gladly.")
    assert (result["task"]["state"], result["receipt"]["letter"]["text"]) == ("accepted", "Gladly.")
    assert shell.json("check", "--as", "bob", "--all")["letters"] == []  # taken on, so acknowledged
    assert step(shell, "start") == "working"
    assert step(shell, "ask", "--body", "Which branch?") == "input_required"
    assert step(shell, "answer", "--body", "main", me="ann") == "working"
    assert step(shell, "complete", "--body", "Fine.", "--data", '{"bugs": 0}') == "completed"
    shown = shell.json("tasks", "show", "t-1", "--as", "ann")
    task = shown["task"]
    assert (task["giver"], task["receiver"], task["subject"], task["is_final"]) == ("ann", "bob", "Review", True)
    assert (task["session"], task["called"], task["thread"]) == ({"chat": 7}, "t-1", "t-1")
    assert task["deadline"] > task["opened_at"]
    texts = [letter["text"] for letter in shown["letters"]]
    assert texts == ["Review it.", "Gladly.", "working", "Which branch?", "main", "Fine."]
    assert shell.json("tasks", "show", "t-1", "--as", "bob")["task"]["session"] is None


def test_a_task_is_rejected_failed_or_canceled_with_a_reason(shell: Shell) -> None:
    for id in ("t-1", "t-2", "t-3"):
        give(shell, id=id)
    assert step(shell, "reject", "--reason", "no time") == "rejected"
    assert step(shell, "accept", id="t-2") == "accepted"
    assert step(shell, "fail", "--reason", "broken", id="t-2") == "failed"
    assert step(shell, "accept", id="t-3") == "accepted"
    canceled = shell.json("tasks", "cancel", "t-3", "--as", "ann", "--reason", "never mind")["task"]
    assert (canceled["state"], canceled["reason"]) == ("canceled", "never mind")


def test_tasks_are_listed_by_side_and_state(shell: Shell) -> None:
    for id in ("t-1", "t-2"):
        give(shell, id=id)
    step(shell, "reject", "--reason", "no")
    assert states(shell, "--as", "ann") == [("t-1", "rejected"), ("t-2", "pending")]
    assert states(shell, "--as", "bob", "--open") == [("t-2", "pending")]
    assert states(shell, "--as", "bob", "--state", "rejected", "--state", "failed") == [("t-1", "rejected")]
    assert states(shell, "--as", "bob", "--role", "given") == []
    assert states(shell, "--as", "bob", "--role", "received", "-n", "1") == [("t-1", "rejected")]
    assert shell.run("tasks", "--as", "bob", "--open", "--state", "failed").code == 64
    assert shell.run("tasks", "--as", "carol").out == "No tasks.\n"


def test_the_rules_or_a_program_judge_a_task(shell: Shell) -> None:
    shell.json("register", "--as", "bob", "--max-tasks", "1", "--capability", "python")
    for id in ("t-1", "t-2"):
        give(shell, id=id)
    give(shell, "--metadata", '{"required_capabilities": ["rust"]}', id="t-3")
    judge = "import json, sys; asked = json.load(sys.stdin); assert asked['card']['id'] == 'bob'; print(asked['letter']['text'])"
    no = f'{sys.executable} -c "{judge}; sys.exit(3)"'
    result = shell.json("tasks", "admit", "t-1", "--as", "bob", "--judge", no)
    assert (result["accepted"], result["task"]["state"], result["task"]["reason"]) == (
        False,
        "rejected",
        "Review it.",
    )
    assert shell.json("tasks", "admit", "t-3", "--as", "bob")["accepted"] is False
    assert shell.json("tasks", "admit", "t-2", "--as", "bob", "--judge", "true")["accepted"] is True
    give(shell, id="t-4")
    full = shell.run("tasks", "accept", "t-4", "--as", "bob", "--json")
    assert (full.code, full.error["name"]) == (75, "QuotaFull")


def test_a_judge_that_cannot_be_started_decides_nothing(shell: Shell) -> None:
    give(shell)
    for program in ("/no/such/program", "", "'"):
        refused = shell.run("tasks", "admit", "t-1", "--as", "bob", "--judge", program, "--json")
        assert (refused.code, refused.error["field"]) == (64, "--judge")
    assert states(shell, "--as", "bob") == [("t-1", "pending")]


def test_a_held_task_is_moved_with_its_token_alone(shell: Shell) -> None:
    give(shell)
    (held,) = shell.json("claim", "--as", "bob")["letters"]
    assert shell.run("tasks", "accept", "t-1", "--as", "bob").code == 69
    assert step(shell, "accept", "--token", held["token"], "--no-ack") == "accepted"
    assert shell.json("read", "t-1", "--as", "bob")["letter"]["delivery"]["state"] == "claimed"
    assert step(shell, "complete", "--token", held["token"]) == "completed"
    assert shell.json("check", "--as", "bob", "--all")["letters"] == []


def test_a_program_that_works_on_a_task_needs_to_say_no_token(shell: Shell) -> None:
    give(shell)
    program = (
        "import os, subprocess, sys; run = lambda verb: subprocess.call([*sys.argv[1:], 'tasks', verb,"
        " os.environ['POSTROOM_ID'], '--json'], stdout=subprocess.DEVNULL);"
        " sys.exit(run('accept') or run('complete'))"
    )
    done = shell.run("work", "--as", "bob", "--timeout", "1", "--", sys.executable, "-c", program, *PROGRAM)
    assert (done.code, done.err) == (0, "")
    assert states(shell, "--as", "ann") == [("t-1", "completed")]


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
def test_a_step_that_cannot_be_is_refused_and_nothing_is_reported(
    shell: Shell, words: tuple[str, ...], code: int, field: str
) -> None:
    give(shell)
    refused = shell.run(*words, "--json")
    assert (refused.code, refused.error["field"] or "") == (code, field), refused
    assert states(shell, "--as", "ann") == [("t-1", "pending")]
    assert shell.json("counts", "--as", "ann")["total"] == 0


def test_the_same_key_gives_one_task(shell: Shell) -> None:
    words = ("tasks", "give", "bob", "--as", "ann", "--body", "x", "--key", "k-1")
    first, again = shell.json(*words), shell.json(*words)
    assert (again["id"], again["repeated"]) == (first["id"], True)
    assert len(states(shell, "--as", "bob")) == 1


def test_people_see_tasks_and_what_agents_work_on(shell: Shell) -> None:
    shell.json("register", "--as", "bob")
    code, shown = show(
        shell, "tasks", "give", "bob", "--as", "ann", "-s", "Review", VISUAL=editor(shell.home, "Do it.")
    )
    assert (code, "tells how it stands" in shown) == (0, True)
    ((id, _),) = states(shell, "--as", "ann")
    assert "STATE" in show(shell, "tasks", "--as", "ann", columns=140)[1]
    assert "accepted" in show(shell, "tasks", "accept", id, "--as", "bob")[1]
    assert "Do it." in show(shell, "tasks", "show", id, "--as", "ann", columns=140)[1]
    assert "Review" in show(shell, "agents", columns=140)[1]
    assert "Works on" in show(shell, "agents", "show", "bob")[1]
    agent = next(agent for agent in shell.json("agents")["agents"] if agent["registered"])
    assert agent["tasks"] == [{"id": id, "subject": "Review", "state": "accepted", "giver": "ann"}]
    assert agent in json.loads(shell.run("agents", "--gone", "--json").out)["agents"]


def refused(shell: Shell, verb: str, *more: str, me: str = "bob") -> tuple[str, str | None]:
    error = shell.run("tasks", verb, "t-1", "--as", me, *more, "--json").error
    return error["message"], error["hint"]


def test_a_step_that_cannot_be_is_refused_with_what_can_be_typed(shell: Shell) -> None:
    give(shell)
    message, hint = refused(shell, "cancel", me="ann")
    assert message == "a task that is pending cannot become canceled"
    assert hint is not None and hint.startswith("postroom unsend t-1 takes it back until it is claimed")
    assert refused(shell, "complete")[1] == "from here: postroom tasks accept, reject"
    assert refused(shell, "answer", "--body", "x", me="ann")[0] == "the task has no open question; it is pending"
    step(shell, "accept")
    assert refused(shell, "ask", "--body", "x")[1] == "first report that you work on it: postroom tasks start t-1"
    assert refused(shell, "accept")[1] == "from here: postroom tasks start, complete, fail, reject"
    assert refused(shell, "answer", "--body", "x", me="ann")[0] == "the task has no open question; it is accepted"
    step(shell, "start")
    step(shell, "ask", "--body", "x")
    assert refused(shell, "cancel", me="ann")[1] == "from here: postroom tasks answer"
    step(shell, "answer", "--body", "y", me="ann")
    step(shell, "complete")
    assert refused(shell, "start")[1] == "legal from here: none, it is final"


def test_the_holder_of_a_task_is_asked_for_its_token(shell: Shell) -> None:
    give(shell)
    shell.json("claim", "--as", "bob")
    for verb in ("accept", "admit"):
        message, hint = refused(shell, verb)
        assert "is held by bob" in message
        assert hint == "give the --token that claim showed, or wait until its lease ends"


def test_a_task_that_is_overdue_says_for_how_long(shell: Shell) -> None:
    with shell.room() as room:
        room.mailbox("ann").give_task("bob", "x", id="t-1", deadline=0.001)
        room.mailbox("ann").give_task("bob", "x", id="t-2", deadline=3600.0)
    shown = shell.run("tasks", "--as", "ann").out
    assert " s overdue |" in shown and "in 60 min" in shown
    shell.json("tasks", "reject", "t-1", "--as", "bob", "--reason", "late")
    assert "overdue" not in shell.run("tasks", "--as", "ann").out  # it is over


def test_the_tasks_of_everyone_are_listed_without_a_name(shell: Shell) -> None:
    give(shell)
    assert states(shell, "--everyone", "--open") == [("t-1", "pending")]
    both = shell.run("tasks", "--everyone", "--role", "given", "--json")
    assert (both.code, both.error["field"]) == (64, "--role")
    assert "--everyone" in shell.run("tasks", "--json").error["hint"]


def test_a_question_is_asked_in_plain_words(shell: Shell) -> None:
    late = shell.run("ask", "bob", "--body", "hi", "--timeout", "0s", "--as", "ann", "--json")
    assert (late.code, late.json["letter"]) == (1, None)

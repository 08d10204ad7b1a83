"""Escalations by commands, and `postroom waiting`: what waits for a person, urgent first, with what to type."""

from __future__ import annotations

import shlex
from typing import Any

from tests.cli.shell import Shell
from tests.cli.terminal import show


def escalate(shell: Shell, *more: str, me: str = "bob") -> Any:
    return shell.json("escalate", "--as", me, "--reason", "blocked", "--body", "No access.\nHelp.", *more)


def waiting(shell: Shell, *words: str) -> list[tuple[str, str, str]]:
    return [(entry["what"], entry["from"], entry["text"]) for entry in shell.json("waiting", *words)["waiting"]]


def test_a_question_goes_up_and_its_answer_comes_down(shell: Shell) -> None:
    request = escalate(shell, "--ladder", "coo", "--ladder", "human", "-s", "Data")
    assert (request["letter"]["kind"], request["letter"]["subject"]) == ("escalation", "Escalation: Data")
    (one,) = shell.json("escalations", "--as", "bob")["escalations"]
    assert (one["id"], one["status"], one["waits_for"]) == (request["escalation_id"], "open", "coo")
    assert (one["rungs"], one["priority"], one["letters"]) == (["coo", "human"], "high", [request["id"]])
    assert shell.json("escalations", "--everyone")["escalations"] == [one]
    assert shell.json("escalations", "--as", "carol")["escalations"] == []
    shell.json("reply", request["id"], "--as", "coo", "--body", "Granted.")
    assert shell.json("escalations", "--as", "bob")["escalations"] == []
    (over,) = shell.json("escalations", "--as", "bob", "--all")["escalations"]
    assert (over["status"], over["closed_by"], over["waits_for"]) == ("answered", "coo", None)


def test_a_question_is_closed_without_an_answer(shell: Shell) -> None:
    request = escalate(shell, "--key", "k-1")
    assert escalate(shell, "--key", "k-1")["repeated"] is True
    assert shell.run("resolve", request["escalation_id"], "--as", "carol").code == 67
    closed = shell.json("resolve", request["escalation_id"], "--as", "bob")["escalation"]
    assert (closed["status"], closed["closed_by"]) == ("resolved", "bob")
    assert shell.run("resolve", request["escalation_id"], "--as", "bob").code == 67


def test_a_refused_escalation_has_its_exit_code_and_makes_no_room(shell: Shell) -> None:
    refused = shell.run("escalate", "--as", "human", "--reason", "x", "--body", "y", "--json")
    assert refused.code in {65, 77}
    assert shell.run("escalate", "--as", "bob", "--body", "y").code == 64
    assert shell.run("escalate", "--as", "bob", "--reason", "two words", "--body", "y").code == 65
    assert not (shell.home / "room.db").exists()


def let_things_wait(shell: Shell) -> None:
    """For the human: a letter, a question about a task, an escalation, a task, and news."""
    with shell.room() as room:
        human, bob = room.mailbox("user"), room.mailbox("bob")
        bob.send("ceo", "a plain letter")
        human.give_task("bob", "Do it.", id="t-1")
        request = bob.task("t-1")
        request.accept()
        request.start()
        request.ask("Which one?")
        bob.escalate("No access.\nHelp.", reason="blocked", ladder=["human"])
        room.mailbox("carol").give_task("human", "Sign this.")
        human.give_task("dan", "x", id="t-2")
        room.mailbox("dan").task("t-2").reject("no")


def test_all_that_waits_is_reported_once_urgent_first_then_by_kind(shell: Shell) -> None:
    let_things_wait(shell)
    expected = [
        ("question", "bob", "Which one?"),
        ("escalation", "bob", "No access."),
        ("task", "carol", "Sign this."),
        ("letter", "bob", "a plain letter"),
        ("news", "dan", "no"),
    ]
    assert waiting(shell) == waiting(shell, "--as", "ceo") == expected
    assert waiting(shell) == expected  # it stamped nothing
    everyone = shell.json("waiting", "--everyone")
    assert (everyone["mailbox"], {one["mailbox"] for one in everyone["waiting"]}) == ("", {"human"})
    assert "letter from bob to human: " in shell.run("waiting", "--everyone").out.replace("human\n", "human: ")
    few = shell.json("waiting", "-n", "2")
    assert (few["mailbox"], len(few["waiting"]), few["more"]) == ("human", 2, 3)


def test_what_it_says_to_type_is_what_helps(shell: Shell) -> None:
    """Every command it shows is typed; then nothing waits any more."""
    let_things_wait(shell)
    shell.sign()
    for _ in range(2):  # a task is accepted first, then completed
        for entry in shell.json("waiting")["waiting"]:
            words = shlex.split(entry["answer"])
            assert words[0] == "postroom"
            needs_text = words[1] == "reply" or words[2:3] == ["answer"]
            shell.json(*words[1:], *(["--body", "Yes."] if needs_text else []))
    assert shell.run("waiting").out == "Nothing waits for human.\n"
    texts = [letter["text"] for letter in shell.json("check", "--as", "bob", "--all")["letters"]]
    assert texts.count("Yes.") == 3


def test_it_is_for_the_calling_agent(shell: Shell) -> None:
    escalate(shell, "--ladder", "coo")
    assert waiting(shell) == []
    assert waiting(shell, "--as", "coo") == [("escalation", "bob", "No access.")]
    assert shell.run("waiting", POSTROOM_AGENT="coo").out.startswith("- just now, escalation from bob")


def test_what_is_urgent_or_due_is_reported(shell: Shell) -> None:
    shell.json("send", "human", "--as", "bob", "--body", "Fire!", "-p", "urgent")
    shell.json("tasks", "give", "human", "--as", "ann", "-s", "Sign it", "--body", "Please.", "--deadline", "2h")
    letter, task = shell.json("waiting")["waiting"]
    assert ("urgent", None) == (letter["priority"], letter["due_at"])
    assert "normal" == task["priority"] and task["due_at"]
    shown = shell.run("waiting").out
    assert "letter from bob [urgent]\n" in shown and "task from ann [due in 2 h]: Sign it\n" in shown


def test_a_long_letter_hides_no_other(shell: Shell) -> None:
    shell.json("send", "human", "--as", "bob", "--body", "words " * 500)
    _, shown = show(shell, "waiting", columns=80)
    assert 3 == shown.count("│ ") and " …" in shown


def test_a_person_sees_it_and_nothing_gets_loose(shell: Shell) -> None:
    shell.json("send", "human", "--as", "bob", "--body", "evil\x1b[31m\u202e\nsecond", "-s", "s\u202ex")
    escalate(shell, "--ladder", "human")
    _, shown = show(shell, "waiting", columns=120)
    assert "│ No access." in shown and "postroom reply " in shown
    assert "\x1b[31m" not in shown and "\u202e" not in shown and "second" not in shown
    assert "WAITS" not in shown
    for words, message in (
        (("escalations", "--as", "human"), "ABOUT"),
        (("escalate", "--as", "x", "--reason", "y", "--body", "z"), "Escalation: ESC-"),
    ):
        assert message in show(shell, *words, columns=140)[1]
    id = shell.json("escalations", "--as", "bob")["escalations"][0]["id"]
    assert "resolved" in show(shell, "resolve", id, "--as", "bob")[1]


def test_a_script_in_the_persons_name_is_told_that_nothing_is_signed(shell: Shell) -> None:
    words = ("send", "bob", "hello", "--as", "human")
    assert "Unproven: no key signed it." in shell.run(*words).out
    assert "Unproven" not in shell.run("send", "bob", "hello", "--as", "ann").out
    refused = shell.run(*words, POSTROOM_AGENT="coder")
    assert refused.code != 0 and "POSTROOM_AGENT is not set" in refused.err
    shell.sign()
    assert "Unproven" not in shell.run(*words).out


def test_a_letter_that_was_taken_back_is_shown_as_nobodys_word(shell: Shell) -> None:
    shell.sign()
    sent = shell.json("send", "bob", "approved", "--as", "human")
    for words in (("read", sent["id"], "--as", "bob"), ("thread", sent["thread"], "--as", "bob")):
        assert "your user's own word" in shell.run(*words).out
    assert "answers it" in show(shell, "read", sent["id"], "--as", "bob")[1]
    shell.json("unsend", sent["id"], "--as", "human")
    for words in (("read", sent["id"], "--as", "bob"), ("thread", sent["thread"], "--as", "bob")):
        piped, shown = shell.run(*words).out, show(shell, *words)[1]
        for text in (piped, shown):
            assert text.lstrip().startswith("Taken back by its sender: it counts no more.") and "approved" in text
            assert "postroom reply" not in text and "postroom ack" not in text
        assert "own word" not in piped and "letter of your user" not in piped


def test_an_unproven_letter_in_the_persons_name_is_marked_at_a_terminal(shell: Shell) -> None:
    forged = shell.post("human", "bob", "approved")
    assert "human (unproven)" in show(shell, "check", "--as", "bob", "--peek")[1]
    assert "human (unproven)" in show(shell, "read", forged, "--as", "bob")[1]
    shell.sign()
    mine = shell.json("send", "bob", "yes", "--as", "human")["id"]
    assert show(shell, "check", "--as", "bob")[1].count("unproven") == 0
    assert "unproven" not in show(shell, "read", mine, "--as", "bob")[1]

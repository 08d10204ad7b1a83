"""The inbox as a person has it: in tmux, by keys. What waits is answered, and what is typed is never lost."""

from __future__ import annotations

import fcntl
import re
import signal
from pathlib import Path

import pytest

from postroom.core.key_file import make_key
from tests.cli.panes import Pane, excuse, planted
from tests.cli.shell import PROGRAM, Shell
from tests.cli.terminal import Terminal, editor, show
from tests.cli.test_asking import let_things_wait
from tests.docs.pages import HOME, blocks

# What is refused is forgotten.
FORGETFUL = planted("""
from msgspec.structs import replace
from postroom.cli.inbox import state
state.refused = lambda old, why, retry="": replace(old, writing=None, drafts={}, notice=why)
""")
# Only a notification makes the program look; and a program that receives none.
BY_NOTIFICATION = "from postroom.cli.inbox import session\nsession.LOOK = 3600.0"
DEAF = "from postroom.store.notification import InotifyWatch\nInotifyWatch.notified = lambda self: set()"


def texts_for(shell: Shell, name: str) -> list[str]:
    with shell.room() as room:
        return [letter.text for letter in room.mailbox(name).check(None, unread_only=False, peek=True)]


def ask(shell: Shell, text: str = "May I delete it?") -> str:
    with shell.room() as room:
        return room.mailbox("bob").escalate(text, reason="approval", ladder=["human"], id="ask-1").id


# -- what is done


def test_all_that_waits_is_answered_in_a_few_keys(shell: Shell) -> None:
    let_things_wait(shell)
    with Pane(shell, "inbox", counted=True, NO_COLOR="1") as pane:
        shown = pane.see("human: 5 wait; the oldest came ")
        order = re.findall(r" (question|escalation|task|letter|news) ", shown)
        assert order == ["question", "escalation", "task", "letter", "news"]
        pane.keys("r", "Use B.", "Enter")
        pane.see("Answered bob.", "human: 4 wait")
        pane.keys("a", "but keep a copy", "Enter")
        pane.see("Approved; bob is notified.", "human: 3 wait")
        pane.keys("a", "Enter")
        pane.see("Accepted; carol is notified.", "c complete")
        pane.keys("c", "Signed.", "Enter")
        pane.see("Complete; carol has the result.", "human: 2 wait")
        pane.keys("r", "Thanks.", "Enter")
        pane.see("Answered bob.", "human: 1 waits")
        pane.keys("x")
        pane.see("x again")
        pane.keys("x")
        pane.see("human: nothing waits", "Done with it.")
        pane.keys("q")
        pane.wait_for_end()
    assert {"Use B.", "approved: but keep a copy", "Thanks."} <= set(texts_for(shell, "bob"))
    assert texts_for(shell, "carol") == ["accepted", "Signed."]
    assert shell.json("inbox")["waiting"] == []


def test_what_is_declined_says_why(shell: Shell) -> None:
    ask(shell)
    with shell.room() as room:
        room.mailbox("carol").give_task("human", "Sign this.", id="t-1")
    with Pane(shell, "inbox", NO_COLOR="1") as pane:
        pane.see("human: 2 wait")
        pane.keys("d", "Enter")
        pane.see("It needs words.")
        pane.keys("Not today.", "Enter")
        pane.see("Declined; bob is notified.")
        pane.keys("d", "No time.", "Enter")
        pane.see("Rejected; carol gets the reason.", "human: nothing waits")
    assert texts_for(shell, "bob") == ["declined: Not today."]
    assert shell.json("tasks", "show", "t-1", "--as", "carol")["task"]["reason"] == "No time."
    (over,) = shell.json("escalations", "--as", "bob", "--all")["escalations"]
    assert (over["status"], over["closed_by"]) == ("answered", "human")


# The program, which asks for the passphrase in the drawn screen.
ASKS_WHILE_DRAWN = planted("""
from postroom.cli.context import Context
Context.asks_passphrase = property(lambda self: True, lambda self, value: None)
from postroom.cli.inbox import state
state.KEYS = ()
""")


@pytest.mark.parametrize(("program", "only_looks"), [(PROGRAM, True), (ASKS_WHILE_DRAWN, False)])
def test_without_the_passphrase_one_only_looks_and_is_not_asked_in_the_drawn_screen(
    shell: Shell, tmp_path: Path, program: list[str], only_looks: bool
) -> None:
    make_key(str(tmp_path / "protected.key"), "secret")
    ask(shell)
    shell.environment["POSTROOM_HUMAN_KEY"] = str(tmp_path / "protected.key")
    with Pane(shell, "inbox", program=program, NO_COLOR="1", columns=120) as pane:
        pane.see("Passphrase of")
        for tries in (1, 2):
            pane.keys("wrong", "Enter")
            pane.see(*["Not this one."] * tries)
        pane.keys("wrong", "Enter")
        pane.see(
            "human: 1 waits",
            "and answer nothing",
            "asks for the key again",
            "only look  Enter open  s sent  ? keys  q leave",
        )
        pane.keys("Enter")
        pane.see("│ May I delete it?", gone="Passphrase")
        pane.keys("a")
        if only_looks:
            pane.see("You can only look here", "only look  q back", gone="Passphrase")
        else:
            pane.see("Enter sends")
            pane.keys("Enter")
            pane.see("Passphrase of")
            return
        pane.keys("q", "q")
        pane.wait_for_end()
    with Pane(shell, "inbox", NO_COLOR="1") as pane:
        pane.see("Passphrase of")
        pane.keys("wrong", "Enter")
        pane.see("Not this one.")
        pane.keys("secret", "Enter")
        pane.see("human: 1 waits")
        pane.keys("a", "Enter")
        pane.see("Approved; bob is notified.")


def test_a_letter_is_read_whole_with_the_letters_before_it(shell: Shell) -> None:
    with shell.room() as room:
        first = room.mailbox("human").send("bob", "How far are you?", id="m-1")
        gone = room.mailbox("bob").reply(first.id, "Quite far.", id="m-0")
    shell.sign()
    shell.json("read", gone.id, "--as", "human")  # what was not read before is not shown
    with shell.room() as room:
        room.mailbox("bob").unsend(gone.id)
        room.mailbox("bob").reply(first.id, "line\n" * 60 + "the end", id="m-2")
    with Pane(shell, "inbox", counted=True, NO_COLOR="1") as pane:
        pane.see("human: 1 waits", "letter  bob   line")
        pane.keys("Enter")
        pane.see("From    bob", "│ line", "r reply  x done  q back")
        pane.keys("G")
        pane.see("│ the end", "Before it:", "[taken back]", "│ Quite far.", "│ How far are you?", gone="Subject")
        pane.keys("g", "q")
        pane.see("human: 1 waits", "letter  bob   line")  # read, and not done with
        (life,) = shell.json("trace", "m-2", "--as", "human")["stops"]
        assert life["read_at"] and [(sight["host"], sight["where"]) for sight in life["sights"]] == [
            ("inbox", "terminal")
        ]
        pane.keys("x")
        pane.see("human: nothing waits")
        pane.keys("q")
        pane.wait_for_end()


def test_new_mail_appears_by_itself_and_stays_where_it_is(shell: Shell) -> None:
    with Pane(shell, "inbox", NO_COLOR="1") as pane:
        pane.see("human: nothing waits")  # there was no room; who waits for mail makes one
        shell.post("ann", "human", "first of all")
        pane.see("human: 1 waits", "letter  ann   first of all")
        pane.keys("r", "half an ans")
        pane.see("> half an ans")
        ask(shell)
        shown = pane.see("human: 2 wait", "escalation")
        assert "> half an ans" in shown and "Reply: letter from ann" in shown
        pane.keys("Enter")
        pane.see("Answered ann.", "> ", "human: 1 waits")
    assert texts_for(shell, "ann") == ["half an ans"]
    (person,) = [agent for agent in shell.json("agents")["agents"] if agent["registered"]]
    assert (person["card"]["id"], person["card"]["program"]) == ("human", "person")
    assert person["presence"]["warmth"] == "dormant"


@pytest.mark.parametrize("hears", [True, False])
def test_new_mail_comes_by_notification(shell: Shell, hears: bool) -> None:
    shell.post("ann", "human", "first")
    with Pane(
        shell, "inbox", program=planted(BY_NOTIFICATION if hears else f"{BY_NOTIFICATION}\n{DEAF}"), NO_COLOR="1"
    ) as pane:
        pane.see("human: 1 waits")
        shell.post("ann", "human", "second")
        if hears:
            pane.see("human: 2 wait")
        else:
            with pytest.raises(TimeoutError, match="human: 2 wait"):
                pane.see("human: 2 wait", patience=1.0)


# -- nothing typed is lost


@pytest.mark.parametrize(("program", "is_kept"), [(PROGRAM, True), (FORGETFUL, False)])
def test_a_reply_that_the_room_refuses_is_kept_with_the_reason(
    shell: Shell, program: list[str], is_kept: bool
) -> None:
    shell.post("ann", "human", "Which one?")
    with Pane(shell, "inbox", program=program, NO_COLOR="1", POSTROOM_BUSY_TIMEOUT="0.2") as pane:
        pane.see("human: 1 waits")
        with (shell.home / "room.db.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            pane.keys("r", "The sécond 日本", "Enter")
            shown = pane.see("is held by process")
            assert ("> The sécond 日本" in shown) is is_kept
        if is_kept:
            pane.keys("Enter")
            pane.see("Answered ann.")
    assert texts_for(shell, "ann") == (["The sécond 日本"] if is_kept else [])


def test_what_is_too_large_or_answered_meanwhile_is_kept(shell: Shell) -> None:
    ask(shell)
    shell.post("ann", "human", "Which one?", id="m-1")
    with Pane(shell, "inbox", NO_COLOR="1", POSTROOM_MAX_MESSAGE_BYTES="2000") as pane:
        pane.see("human: 2 wait")
        pane.keys("j", "r")
        pane.paste("much\nmore " * 200)
        pane.see("much⏎more")
        pane.keys("Enter")
        pane.see("the limit is 2000")
        pane.keys("C-u", "less", "Enter")
        pane.see("Answered ann.")
        pane.keys("a", "my words")
        pane.see("> my words")
        shell.sign()
        shell.json("reply", "ask-1", "--as", "human", "--done", "--body", "No.")
        pane.keys("Enter")
        pane.see("It no longer waits for you.", "> my words", "human: nothing waits")
    assert (texts_for(shell, "ann"), texts_for(shell, "bob")) == (["less"], ["No."])


def test_a_draft_is_there_again_after_a_kill(shell: Shell) -> None:
    shell.post("ann", "human", "Which one?", id="m-1")
    first = Terminal(shell, "inbox", counted=False, NO_COLOR="1")
    first.read_until("Which one?")
    first.type("r")
    first.read_until("Your answer:")
    first.type("half a senté")
    first.read_until("senté")
    first.send(signal.SIGKILL)
    assert first.finish()[0] == -signal.SIGKILL
    with Pane(shell, "inbox", NO_COLOR="1") as pane:
        pane.see("[draft] Which one?")
        pane.keys("r")
        pane.see("> half a senté")
        pane.keys("nce", "Enter")
        pane.see("Answered ann.")
    assert texts_for(shell, "ann") == ["half a senténce"]
    assert not list((shell.home / ".local/state/postroom/drafts").rglob("*.md"))


def test_what_is_pasted_waits_for_enter(shell: Shell) -> None:
    shell.post("ann", "human", "Which one?", id="m-1")
    with Pane(shell, "inbox", NO_COLOR="1") as pane:
        pane.see("human: 1 waits")
        pane.paste("xx\nq\n")  # at the list it means nothing
        pane.keys("r")
        pane.paste("one\nx\n")
        pane.see("> one⏎x⏎", "human: 1 waits")
        pane.keys("Enter")
        pane.see("Answered ann.")
    assert texts_for(shell, "ann") == ["one\nx"]


def test_long_answers_are_written_in_the_editor(shell: Shell, tmp_path: Path) -> None:
    shell.post("ann", "human", "Which one?", id="m-1")
    program = editor(tmp_path, "two\nlines\n")
    with Pane(shell, "inbox", counted=True, NO_COLOR="1", EDITOR=program) as pane:
        pane.see("human: 1 waits")
        pane.keys("e")
        pane.see("> two⏎lines", "Enter sends it")
        editor(tmp_path, "half done", code=1)
        pane.keys("C-e")
        pane.see("> half done", "the editor ended with 1")
        pane.keys("Enter")
        pane.see("Answered ann.")
        pane.keys("q")
        pane.wait_for_end()
    assert texts_for(shell, "ann") == ["half done"]
    shell.post("ann", "human", "And now?", id="m-2")
    with Pane(shell, "inbox", NO_COLOR="1") as pane:
        pane.see("And now?")
        pane.keys("e")
        pane.see("set VISUAL or EDITOR")


# -- what is told of it


def as_told(picture: str) -> list[str]:
    """Without what depends on the moment: ages, and how wide they are."""
    aged = re.sub(r"(just now|\d+ s ago) *", "AGE ", picture.replace("SINCE", "").rstrip())
    return [re.sub(r"  +", "  ", line).strip() for line in aged.splitlines()]


def test_the_page_shows_what_it_looks_like(shell: Shell) -> None:
    with shell.room() as room:
        question = "May I delete the old index? It is 4 GB, and nothing has read it since May."
        room.mailbox("coder").escalate(question, reason="approval", subject="The old index")
        room.mailbox("human").give_task("reviewer", "Please review it.", subject="Review the release", id="t-1")
        review = room.mailbox("reviewer").task("t-1")
        review.accept()
        review.start()
        review.ask("Only the code, or the pages too?")
        room.mailbox("planner").give_task("human", "It is in docs/contract.pdf.", subject="Sign the contract")
        room.mailbox("researcher").send("human", "It is stable; quicksort is not.", subject="Merge sort")
    first, second = (
        block.code for block in blocks(HOME / "docs" / "people.md") if block.code.startswith("human: ")
    )
    with Pane(shell, "inbox", lines=16, NO_COLOR="1") as pane:
        assert as_told(pane.see("human: 4 wait")) == as_told(first)
        pane.keys("a", "but keep a copy")
        assert as_told(pane.see("> but keep a copy")) == as_told(second)


# -- elsewhere than at a terminal


def test_it_is_a_list_where_nothing_can_be_drawn_or_typed(shell: Shell) -> None:
    let_things_wait(shell)
    result = shell.json("inbox")
    whats = [(entry["what"], entry["state"], entry["read"]) for entry in result["waiting"]]
    assert whats == [
        ("question", "input_required", None), ("escalation", None, None), ("task", "pending", None),
        ("letter", None, False), ("news", "rejected", False),
    ]  # fmt: skip
    assert {entry["letter"] for entry in result["waiting"]} == {
        e["letter"] for e in shell.json("waiting")["waiting"]
    }
    assert "question from bob" in shell.run("inbox").out.splitlines()[0]
    for term in ("dumb", ""):
        code, shown = show(shell, "inbox", TERM=term)
        assert (code, "\x1b[?1049h" in shown, "postroom tasks answer t-1" in shown) == (0, False, True)
    assert not any(
        agent["registered"] for agent in shell.json("agents")["agents"]
    )  # whoever only looks leaves no trace
    shell.json("read", result["waiting"][3]["letter"], "--as", "human")
    assert [entry["read"] for entry in shell.json("inbox")["waiting"]][3] is False, (
        "nobody proved to be the person"
    )
    show(shell, "read", result["waiting"][3]["letter"], "--as", "human")
    assert [entry["read"] for entry in shell.json("inbox")["waiting"]][3] is True
    assert len(shell.json("waiting")["waiting"]) == 4  # which is about unread mail


def test_a_room_that_was_misspelt_is_not_made(shell: Shell) -> None:
    code, shown = show(shell, "inbox", "--room", "other.db")
    assert (code, "there is no room" in shown, (shell.home / "other.db").exists()) == (66, True, False)


@pytest.mark.parametrize(
    ("must_run", "has_apt", "user", "is_excused"),
    [(True, True, 0, False), (True, True, 1000, True), (True, False, 0, True), (False, True, 0, True)],
)
def test_where_tmux_can_be_installed_it_must_run(
    must_run: bool, has_apt: bool, user: int, is_excused: bool
) -> None:
    assert bool(excuse(must_run, lambda name: name if has_apt else None, user)) is is_excused

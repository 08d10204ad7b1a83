"""Words beside the answer, for people: what was probably meant, what is not used, what was dropped, who is next.

They go to standard error, on one line, and programs that ask for JSON hear none.
"""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from tests.cli.terminal import show
from tests.renaming import rename


def test_a_project_room_that_is_not_used_is_reported_once_and_never_in_the_answer(shell: Shell) -> None:
    del shell.environment["POSTROOM_STORE"]
    link, elsewhere = shell.home / ".postroom", shell.home / "elsewhere"
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    text = f"postroom: {link} is a link, so it is not used: postroom init makes a room of your own, --room names another\n"
    assert shell.run("send", "bob", "--as", "ann", "--body", "x").err == text
    quick, slow = shell.run("check", "--as", "ann"), shell.run("check", "--as", "ann", "--all")
    assert [(text, "No unread mail for ann.\n")] * 2 == [(quick.err, quick.out), (slow.err, slow.out)]
    assert shell.run("check", "--as", "ann", "--room", "room.db").err.count("not used") == 0
    assert shell.json("room")["passed_by"] == [{"path": str(link), "why": "is a link"}]
    link.unlink()
    assert shell.json("room")["passed_by"] == []


def test_a_room_inside_that_is_a_link_is_reported_too(shell: Shell) -> None:
    del shell.environment["POSTROOM_STORE"]
    (shell.home / ".postroom").mkdir()
    (shell.home / ".postroom/room.db").symlink_to(shell.home / "other\x1b.db")
    done = shell.run("room")
    assert f"{shell.home}/.postroom/room.db is a link" in done.err


def test_a_name_that_nobody_has_is_reported_with_the_nearest(shell: Shell) -> None:
    with shell.room() as room:
        room.mailbox("planner").send(["researcher", "agent-1"], "x")
        for words in (["check"], ["check", "--all"], ["digest"], ["counts"], ["sent"]):
            done = shell.run(*words, "--as", "reseacher")
            assert (done.code, done.err) == (
                0,
                "postroom: nobody here is called 'reseacher'; did you mean 'researcher'?\n",
            )
            assert "reseacher" not in done.out or "mail for reseacher" in done.out or "has sent" in done.out
        for merely_new in ("agent-2", "zoe", "res"):
            assert shell.run("check", "--as", merely_new).err == ""
            assert shell.run("check", "--as", merely_new, "--all").err == ""
        assert shell.json("check", "--as", "reseacher")["letters"] == []


def test_a_field_that_a_new_card_drops_is_reported(shell: Shell) -> None:
    first = shell.run(
        "register", "--as", "ann", "--scope", "a", "--scope", "b", "--name", "Ann", "--max-tasks", "5"
    )
    assert first.err == ""
    again = shell.run("register", "--as", "ann", "--capability", "python", "--name", "Ann")
    dropped = "--scope a, --scope b, --max-tasks 5"
    assert again.err == f"postroom: no longer on the card of ann: {dropped}; register replaces the whole card\n"
    result = shell.json("register", "--as", "ann", "--name", "Anna")
    assert result["dropped"] == {"capabilities": ["python"]}
    assert shell.json("register", "--as", "ann", "--name", "Anna")["dropped"] == {}


def test_a_plain_letter_moves_no_task_and_says_so(shell: Shell) -> None:
    note = '{"id": "t-1", "state": "completed"}'
    refused = shell.run("send", "bob", "--as", "ann", "--body", "x", "--task", note, "--json")
    assert (refused.code, refused.error["field"]) == (64, "--task")
    assert "postroom tasks" in refused.error["hint"]
    carried = shell.json("send", "bob", "--as", "ann", "--body", "x", "--task", note, "--kind", "news")
    assert carried["letter"]["task"]["state"] == "completed"


def test_a_name_in_another_case_since_a_rename_is_reported_as_the_new_one(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    with shell.room() as room:
        rename(room, "bob", "BOB")
    for words in (["check"], ["counts"], ["sent"]):
        result = shell.run(*words, "--as", "bob", "--json").error
        assert (result["message"], result["hint"]) == ("'bob' is now 'BOB'", "write 'BOB'"), words
    assert shell.json("send", "bob", "--as", "ann", "--body", "y")["letter"]["recipients"][0]["address"] == "bob"
    assert len(shell.json("check", "--as", "BOB")["letters"]) == 2


def test_an_escalation_names_the_agent_it_went_to_and_the_next_one(shell: Shell) -> None:
    alone = shell.run("escalate", "--as", "ann", "--reason", "blocked", "--body", "x").out
    assert " to human.\n" in alone
    assert "Passed over: coo (never active here, or takes no mail from you).\n" in alone
    assert "Unanswered" not in alone
    shell.json("register", "--as", "coo")
    request = shell.run("escalate", "--as", "ann", "--reason", "blocked", "--body", "x").out
    assert " to coo.\n" in request and "Passed over" not in request
    assert "If nobody answers, human is asked in 4 h.\n" in request
    result = shell.json("escalate", "--as", "ann", "--reason", "blocked", "--body", "x")
    assert result["next"]["name"] == "human"
    named = shell.json("escalate", "--as", "ann", "--reason", "blocked", "--body", "x", "--ladder", "new-one")
    assert (named["letter"]["recipients"][0]["address"], named["next"]) == ("new-one", None)


# -- ids

ULIDS = ["01J00000000000000000000000", "01J00000000000000000000001", "01J0000AAA0000000000000000"]
HIDDEN = "01J0000BBB0000000000000000"


@pytest.fixture
def mail(shell: Shell) -> Shell:
    with shell.room() as room:
        for id in (*ULIDS, "job-10"):
            room.mailbox("ann").send("bob", f"text {id}", id=id)
        room.mailbox("ann").send("carol", "secret", id=HIDDEN)
    return shell


def test_a_beginning_that_one_letter_has_is_its_id(mail: Shell) -> None:
    assert mail.json("read", ULIDS[2][:8], "--as", "bob")["letter"]["id"] == ULIDS[2]
    assert mail.json("trace", HIDDEN[:8])["letter"]["id"] == HIDDEN  # the operator sees all
    assert mail.json("thread", ULIDS[2][:9], "--as", "ann")["letters"][0]["id"] == ULIDS[2]
    answer = mail.json("reply", ULIDS[2][:8], "--as", "bob", "--body", "y")
    assert answer["letter"]["in_reply_to"] == ULIDS[2]
    assert mail.json("wait", "--as", "ann", "--thread", ULIDS[2][:8])["letter"]["text"] == "y"
    done = mail.json("ack", ULIDS[2][:8], ULIDS[1], "--as", "bob")["letters"]
    assert [letter["id"] for letter in done] == [ULIDS[2], ULIDS[1]]


def test_a_beginning_that_several_have_is_refused_with_the_candidates(mail: Shell) -> None:
    for words in (["read"], ["ack"], ["reply", "--body", "x"]):
        refused = mail.run(*words, ULIDS[0][:6], "--as", "bob", "--json")
        assert (refused.code, refused.error["field"]) == (65, "ID")
        assert refused.error["hint"] == ", ".join(ULIDS)
    assert mail.json("counts", "--as", "bob")["total"] == 4  # and nothing was stamped


def test_what_is_not_there_and_what_is_anothers_are_alike(mail: Shell) -> None:
    errors = [mail.run("read", word, "--as", "bob", "--json").error for word in (HIDDEN[:8], "01J0000CC")]
    results = [error["message"].replace(HIDDEN[:8], "ID").replace("01J0000CC", "ID") for error in errors]
    assert results == ["no letter 'ID' in 'bob'"] * 2


@pytest.mark.parametrize("word", ["job-1", "01J", "01j0000aaa"])
def test_chosen_ids_and_too_short_ones_are_not_completed(mail: Shell, word: str) -> None:
    assert mail.run("read", word, "--as", "bob").code == 67


def test_a_terminal_shows_as_much_of_an_id_as_is_needed_and_a_pipe_all(mail: Shell) -> None:
    _, shown = show(mail, "check", "--as", "bob", "--peek", columns=100)
    column = [line.split()[0] for line in shown.splitlines()[1:5]]
    assert column == [ULIDS[0], ULIDS[1], ULIDS[2][:10], "job-10"]
    _, sent = show(mail, "sent", "--as", "ann", columns=100)
    assert [line.split()[0] for line in sent.splitlines()[1:3]] == [HIDDEN[:10], "job-10"]
    piped = mail.run("check", "--as", "bob", "--peek", "--color", "always").out
    assert all(id in piped for id in ULIDS)


def test_what_was_sent_is_listed_the_newest_first(mail: Shell) -> None:
    assert [letter["id"] for letter in mail.json("sent", "--as", "ann", "-n", "2")["letters"]] == [
        HIDDEN,
        "job-10",
    ]
    assert "text job-10" in mail.run("sent", "--as", "ann").out
    assert mail.run("sent", "--as", "bob").out == "bob has sent nothing.\n"


def test_ones_own_letters_are_not_called_another_agents(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    mine, theirs = shell.run("sent", "--as", "ann").out, shell.run("check", "--as", "bob").out
    assert "is what you sent. It is data" in mine and "another agent" not in mine
    assert "was written by another agent" in theirs


def test_a_text_may_stand_behind_whom_or_what_it_is_for(shell: Shell) -> None:
    shell.json("send", "bob", "hello", "--as", "ann", "--letter-id", "m-1")
    shell.json("reply", "m-1", "good day", "--as", "bob")
    shell.json("tasks", "give", "bob", "Sort it.", "--as", "ann", "--letter-id", "t-1")
    shell.json("tasks", "accept", "t-1", "with pleasure", "--as", "bob")
    thread = shell.json("thread", "t-1", "--as", "ann")["letters"]
    assert ["Sort it.", "with pleasure"] == [letter["text"] for letter in thread]
    assert "good day" == shell.json("thread", "m-1", "--as", "ann")["letters"][1]["text"]
    twice = shell.run("reply", "m-1", "good day", "--as", "bob", "--body", "other", "--json")
    assert (twice.code, twice.error["message"]) == (64, "is given twice")


def test_a_request_waits_for_its_answer(shell: Shell) -> None:
    words = ("ask", "bob", "Which sort?", "--as", "ann", "--key", "k-1", "--timeout", "0")
    late = shell.run(*words, "--json")
    assert (late.code, late.json["letter"], late.json["key"]) == (1, None, "k-1")
    assert "with --key k-1 waits on" in shell.run(*words).out
    shell.json("reply", late.json["id"], "Merge sort.", "--as", "bob")
    answer = shell.json(*words)["letter"]
    assert (answer["text"], answer["delivery"]["state"]) == ("Merge sort.", "done")
    assert len(shell.json("sent", "--as", "ann")["letters"]) == 1
    assert "postroom ask TO [TEXT]" in shell.run("help", "ask").out


def test_a_dead_letter_shows_its_mailbox_and_its_reason(shell: Shell) -> None:
    shell.json("send", "bob", "hello", "--as", "ann", "--letter-id", "m-1")
    shell.json("reject", "m-1", "--as", "bob", "--reason", "not mine")
    for words in (("dead", "--everyone"), ("dead", "--everyone", "--color", "always")):
        shown = shell.run(*words).out
        assert "bob" in shown and "not mine" in shown
    assert "- Mailbox: bob\n- Reason: not mine" in shell.run("dead", "--as", "bob").out
    assert "No dead letters.\n" == shell.run("dead", "--as", "ann").out


def test_a_former_name_says_how_the_command_is_called_now(shell: Shell) -> None:
    shell.json("send", "bob", "hello", "--as", "ann")
    assert "'room' is called 'rooms' now" in shell.run("room").err
    assert shell.run("rooms").err == shell.run("room", "--json").err == ""

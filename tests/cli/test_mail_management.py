"""Templates, routing, unsending, blocking, renaming: by commands, as in the library."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Shell
from tests.cli.terminal import editor, show


def test_a_template_is_saved_listed_shown_filled_and_deleted(shell: Shell) -> None:
    words = ("-s", "Review {file}", "-k", "request", "-p", "high", "--tag", "about-{file}", "--tag", "urgent")
    saved = shell.json("templates", "save", "review", *words, stdin="Please look at {file}, {{really}}.\n")[
        "template"
    ]
    assert (saved["name"], saved["places"], saved["priority"]) == ("review", ["file"], "high")
    assert shell.json("templates")["templates"] == [saved]
    assert shell.json("templates", "show", "review")["template"] == saved
    assert "\n- Tags: about-{file}, urgent\n" in shell.run("templates", "show", "review").out
    sent = shell.json("send", "bob", "--as", "ann", "--template", "review", "--fill", "file=a=b.py", "-p", "low")
    letter = sent["letter"]
    assert (letter["text"], letter["subject"]) == ("Please look at a=b.py, {really}.", "Review a=b.py")
    assert (letter["kind"], letter["priority"], letter["tags"]) == ("request", "low", ["about-a=b.py", "urgent"])
    assert shell.json("templates", "delete", "review")["deleted"] == "review"
    assert shell.run("templates", "show", "review").code == shell.run("templates", "delete", "review").code == 67
    assert shell.run("templates").out == "No templates yet.\n"


@pytest.mark.parametrize(
    ("more", "code", "field"),
    [
        (("--template", "review"), 65, "values.file"),
        (("--template", "review", "--fill", "other=x"), 65, "values"),
        (("--template", "review", "--fill", "file=x", "--fill", "file=y"), 64, "--fill"),
        (("--template", "review", "--fill", "file"), 64, "--fill"),
        (("--template", "review", "--fill", "file=x", "--body", "y"), 64, "--body"),
        (("--template", "nothing"), 67, "template"),
        (("--fill", "file=x", "--body", "y"), 64, "--fill"),
        (("--template", "review", "--drafts", "-"), 64, "--drafts"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_a_template_filled_wrongly_sends_nothing(
    shell: Shell, more: tuple[str, ...], code: int, field: str
) -> None:
    shell.json("templates", "save", "review", "--body", "Look at {file}.")
    refused = shell.run("send", "bob", "--as", "ann", *more, "--json")
    assert (refused.code, refused.error["field"]) == (code, field), refused
    assert shell.json("check", "--as", "bob")["letters"] == []


def test_a_template_with_a_wrong_place_is_refused(shell: Shell) -> None:
    for body in ("{", "{a b}", "{a.b}"):
        assert shell.run("templates", "save", "x", "--body", body).code == 65
    assert shell.run("templates", "save", "a b", "--body", "x").code == 65
    assert not (shell.home / "room.db").exists()


def test_a_template_is_written_in_the_editor_and_shown_to_people(shell: Shell) -> None:
    code, shown = show(shell, "templates", "save", "x", EDITOR=editor(shell.home, "Dear {name}"))
    assert (code, "│ Dear {name}" in shown) == (0, True)
    assert "PLACES" in show(shell, "templates")[1]
    assert "Deleted x." in show(shell, "templates", "delete", "x")[1]


def test_a_letter_goes_to_the_least_busy_agent_with_the_skill(shell: Shell) -> None:
    for name in ("bob", "carol"):
        shell.json("register", "--as", name, "--capability", "python")
    shell.post("ann", "bob", "busy now")
    sent = shell.json("send", "any:python", "--as", "ann", "--body", "Sort it.")
    assert (sent["routed"], sent["unknown"]) == (["carol"], [])
    assert [letter["text"] for letter in shell.json("check", "--as", "carol")["letters"]] == ["Sort it."]
    assert "Chosen: " in shell.run("send", "any:python", "--as", "ann", "--body", "Sort it.").out
    assert shell.run("send", "any:rust", "--as", "ann", "--body", "x").code == 67


def test_letters_can_be_unsent_until_a_recipient_has_them(shell: Shell) -> None:
    ids = [shell.post("ann", "bob", text) for text in ("x", "y", "z")]
    assert [letter["text"] for letter in shell.json("unsend", *ids[:2], "--as", "ann")["letters"]] == ["x", "y"]
    assert "Took back" in shell.run("unsend", ids[0], "--as", "ann").out  # twice is the same as once
    shell.json("claim", "--as", "bob")
    late = shell.run("unsend", ids[2], "--as", "ann", "--json")
    assert (late.code, late.error["name"]) == (77, "IllegalMove")
    assert shell.run("unsend", ids[2], "--as", "carol").code == 67


def test_mail_from_some_is_refused(shell: Shell) -> None:
    assert shell.json("block", "spammer", "--as", "bob")["blocked"] == ["spammer"]
    assert shell.json("block", "--as", "bob")["blocked"] == ["spammer"]
    assert shell.run("send", "bob", "--as", "spammer", "--body", "x").code == 77
    assert shell.run("block", "--as", "bob").out == "Blocked: spammer.\n"
    assert shell.json("unblock", "spammer", "--as", "bob")["blocked"] == []
    assert shell.run("unblock", "spammer", "--as", "bob").out == "Nobody is blocked.\n"
    assert shell.run("block", "no one", "--as", "bob").code == 65
    shell.post("spammer", "bob", "x")


# -- several letters in one commit


def test_several_letters_are_settled_together_or_not_at_all(shell: Shell) -> None:
    ids = [shell.post("ann", "bob", text) for text in ("x", "y", "z")]
    before = shell.json("changes")["cursor"]
    assert shell.run("ack", *ids, "m-0", "--as", "bob").code == 67
    (held,) = shell.json("claim", "--as", "bob")["letters"]
    for words in (("ack",), ("reject", "--reason", "no")):
        assert shell.run(*words, *ids, "--as", "bob").code == 69  # one of them is held
    moved = [c for c in shell.json("changes", before)["changes"] if c["state"] in {"done", "dead"}]
    assert moved == []
    shell.json("release", held["id"], "--as", "bob", "--token", held["token"])
    done = shell.json("reject", *ids[:2], ids[0], "--as", "bob", "--reason", "no")["letters"]
    assert [(letter["id"], letter["state"]) for letter in done] == [(id, "dead") for id in ids[:2]]
    assert [letter["state"] for letter in shell.json("ack", ids[2], ids[2], "--as", "bob")["letters"]] == ["done"]


def test_a_batch_fails_in_one_commit(shell: Shell) -> None:
    for text in ("x", "y"):
        shell.post("ann", "bob", text)
    held = shell.json("claim", "--as", "bob", "--count", "2")["letters"]
    token, ids = held[0]["token"], [letter["id"] for letter in held]
    other = shell.post("ann", "bob", "z")
    assert shell.run("fail", *ids, other, "--as", "bob", "--token", token, "--reason", "no").code == 69
    failed = shell.json("fail", *ids, "--as", "bob", "--token", token, "--reason", "no")["letters"]
    assert [(letter["state"], letter["attempts"]) for letter in failed] == [("unread", 1), ("unread", 1)]


def test_an_answer_may_be_the_end_of_a_letter(shell: Shell) -> None:
    sent = shell.post("ann", "bob", "x")
    answer = shell.json("reply", sent, "--as", "bob", "--done", "--body", "y")
    assert (answer["thread"], answer["letter"]["in_reply_to"]) == (sent, sent)
    assert shell.json("check", "--as", "bob", "--all")["letters"] == []
    other = shell.post("ann", "bob", "x")
    shell.json("claim", "--as", "bob")
    refused = shell.run("reply", other, "--as", "bob", "--done", "--body", "y", "--json")
    assert (refused.code, json.loads(refused.err)["error"]["name"]) == (69, "LeaseLost")
    assert shell.json("counts", "--as", "ann")["total"] == 1

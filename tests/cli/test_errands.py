"""Templates, routing, unsending, blocking, renaming: by commands, as in the library."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Desk
from tests.cli.terminal import editor, show


def test_a_template_is_saved_listed_shown_filled_and_deleted(desk: Desk) -> None:
    words = ("-s", "Review {file}", "-k", "request", "-p", "high", "--tag", "about-{file}")
    saved = desk.json("templates", "save", "review", *words, stdin="Please look at {file}, {{really}}.\n")[
        "template"
    ]
    assert (saved["name"], saved["places"], saved["priority"]) == ("review", ["file"], "high")
    assert desk.json("templates")["templates"] == [saved]
    assert desk.json("templates", "show", "review")["template"] == saved
    sent = desk.json("send", "bob", "--as", "ann", "--template", "review", "--fill", "file=a=b.py", "-p", "low")
    letter = sent["letter"]
    assert (letter["text"], letter["subject"]) == ("Please look at a=b.py, {really}.", "Review a=b.py")
    assert (letter["kind"], letter["priority"], letter["tags"]) == ("request", "low", ["about-a=b.py"])
    assert desk.json("templates", "delete", "review")["deleted"] == "review"
    assert desk.run("templates", "show", "review").code == desk.run("templates", "delete", "review").code == 67
    assert desk.run("templates").out == "No templates yet.\n"


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
def test_a_template_filled_wrongly_sends_nothing(desk: Desk, more: tuple[str, ...], code: int, field: str) -> None:
    desk.json("templates", "save", "review", "--body", "Look at {file}.")
    refused = desk.run("send", "bob", "--as", "ann", *more, "--json")
    assert (refused.code, refused.error["field"]) == (code, field), refused
    assert desk.json("check", "--as", "bob")["letters"] == []


def test_a_template_with_a_wrong_place_is_refused(desk: Desk) -> None:
    for body in ("{", "{a b}", "{a.b}"):
        assert desk.run("templates", "save", "x", "--body", body).code == 65
    assert desk.run("templates", "save", "a b", "--body", "x").code == 65
    assert not (desk.home / "room.db").exists()


def test_a_template_is_written_in_the_editor_and_shown_to_people(desk: Desk) -> None:
    code, shown = show(desk, "templates", "save", "x", EDITOR=editor(desk.home, "Dear {name}"))
    assert (code, "│ Dear {name}" in shown) == (0, True)
    assert "PLACES" in show(desk, "templates")[1]
    assert "Deleted x." in show(desk, "templates", "delete", "x")[1]


def test_a_letter_goes_to_whoever_can_and_is_least_busy(desk: Desk) -> None:
    for name in ("bob", "carol"):
        desk.json("register", "--as", name, "--capability", "python")
    desk.post("ann", "bob", "busy now")
    sent = desk.json("send", "any:python", "--as", "ann", "--body", "Sort it.")
    assert (sent["routed"], sent["unknown"]) == (["carol"], [])
    assert [letter["text"] for letter in desk.json("check", "--as", "carol")["letters"]] == ["Sort it."]
    assert "Chosen: " in desk.run("send", "any:python", "--as", "ann", "--body", "Sort it.").out
    assert desk.run("send", "any:rust", "--as", "ann", "--body", "x").code == 67


def test_letters_are_taken_back_until_somebody_has_them(desk: Desk) -> None:
    ids = [desk.post("ann", "bob", text) for text in ("x", "y", "z")]
    assert [letter["text"] for letter in desk.json("unsend", *ids[:2], "--as", "ann")["letters"]] == ["x", "y"]
    assert "Took back" in desk.run("unsend", ids[0], "--as", "ann").out  # twice is the same as once
    desk.json("claim", "--as", "bob")
    late = desk.run("unsend", ids[2], "--as", "ann", "--json")
    assert (late.code, late.error["name"]) == (77, "IllegalMove")
    assert desk.run("unsend", ids[2], "--as", "carol").code == 67


def test_mail_from_some_is_refused(desk: Desk) -> None:
    assert desk.json("block", "spammer", "--as", "bob")["blocked"] == ["spammer"]
    assert desk.json("block", "--as", "bob")["blocked"] == ["spammer"]
    assert desk.run("send", "bob", "--as", "spammer", "--body", "x").code == 77
    assert desk.run("block", "--as", "bob").out == "Blocked: spammer.\n"
    assert desk.json("unblock", "spammer", "--as", "bob")["blocked"] == []
    assert desk.run("unblock", "spammer", "--as", "bob").out == "Nobody is blocked.\n"
    assert desk.run("block", "no one", "--as", "bob").code == 65
    desk.post("spammer", "bob", "x")


@pytest.mark.mechanism
def test_an_agent_gets_another_name(desk: Desk) -> None:
    desk.post("ann", "bob", "x")
    assert desk.run("rename", "bob", "robert").out == "bob is called robert now.\n"
    desk.post("ann", "bob", "y")
    assert [letter["text"] for letter in desk.json("check", "--as", "robert")["letters"]] == ["x", "y"]
    result = desk.json("rename", "ann", "anna")
    assert (result["old"], result["new"]) == ("ann", "anna")
    assert desk.run("rename", "anna", "robert").code == 69
    assert desk.run("rename", "nobody", "somebody").code == 67
    assert desk.run("rename", "anna", "no one").code == 65


# -- several letters in one commit


def test_several_letters_are_settled_together_or_not_at_all(desk: Desk) -> None:
    ids = [desk.post("ann", "bob", text) for text in ("x", "y", "z")]
    before = desk.json("changes")["cursor"]
    assert desk.run("ack", *ids, "m-0", "--as", "bob").code == 67
    (held,) = desk.json("claim", "--as", "bob")["letters"]
    for words in (("ack",), ("reject", "--reason", "no")):
        assert desk.run(*words, *ids, "--as", "bob").code == 69  # one of them is held
    moved = [c for c in desk.json("changes", before)["changes"] if c["state"] in {"done", "dead"}]
    assert moved == []
    desk.json("release", held["id"], "--as", "bob", "--token", held["token"])
    done = desk.json("reject", *ids[:2], ids[0], "--as", "bob", "--reason", "no")["letters"]
    assert [(letter["id"], letter["state"]) for letter in done] == [(id, "dead") for id in ids[:2]]
    assert [letter["state"] for letter in desk.json("ack", ids[2], ids[2], "--as", "bob")["letters"]] == ["done"]


def test_a_batch_fails_in_one_commit(desk: Desk) -> None:
    for text in ("x", "y"):
        desk.post("ann", "bob", text)
    held = desk.json("claim", "--as", "bob", "--count", "2")["letters"]
    token, ids = held[0]["token"], [letter["id"] for letter in held]
    other = desk.post("ann", "bob", "z")
    assert desk.run("fail", *ids, other, "--as", "bob", "--token", token, "--reason", "no").code == 69
    failed = desk.json("fail", *ids, "--as", "bob", "--token", token, "--reason", "no")["letters"]
    assert [(letter["state"], letter["attempts"]) for letter in failed] == [("unread", 1), ("unread", 1)]


def test_an_answer_may_be_the_end_of_a_letter(desk: Desk) -> None:
    sent = desk.post("ann", "bob", "x")
    answer = desk.json("reply", sent, "--as", "bob", "--done", "--body", "y")
    assert (answer["thread"], answer["letter"]["in_reply_to"]) == (sent, sent)
    assert desk.json("check", "--as", "bob", "--all")["letters"] == []
    other = desk.post("ann", "bob", "x")
    desk.json("claim", "--as", "bob")
    refused = desk.run("reply", other, "--as", "bob", "--done", "--body", "y", "--json")
    assert (refused.code, json.loads(refused.err)["error"]["name"]) == (69, "LeaseLost")
    assert desk.json("counts", "--as", "ann")["total"] == 1

"""The commands about webhooks: a secret that is shown once, a test that says what is wrong, and no surprise."""

from __future__ import annotations

import re

import pytest

from postroom.core import webhooks
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.model.webhook import sign
from tests.cli.shell import Shell
from tests.cli.terminal import Terminal
from tests.hosts.receiver import Answer, Receiver

URL = "https://hooks.example.com/postroom"


def added(shell: Shell, url: str = URL, *more: str) -> tuple[str, str]:
    """Id and secret."""
    result = shell.json("webhook", "add", url, "--for", "human", *more)
    return result["webhook"]["id"], result["secret"]


def test_a_secret_is_shown_once_and_goes_alone_into_a_file(shell: Shell) -> None:
    made = shell.run("webhook", "add", URL, "--for", "human")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=\n", made.out) and "is called for human" in made.err
    [webhook] = shell.json("webhook", "list")["webhooks"]
    changed = shell.run("webhook", "rotate", webhook["id"])
    assert changed.out.startswith("whsec_") and changed.out != made.out
    for words in (["list"], ["list", "--json"]):
        shown = shell.run("webhook", *words)
        assert "whsec_" not in shown.out + shown.err and URL in shown.out
    shell.json("webhook", "remove", webhook["id"])
    assert [] == shell.json("webhook", "list")["webhooks"]
    assert "No webhooks: nothing is called." in shell.run("webhook", "list").out


def test_at_a_terminal_the_secret_is_explained(shell: Shell) -> None:
    terminal = Terminal(shell, "webhook", "add", URL, "--for", "human", "--room", "room.db")
    code, shown = terminal.finish()
    assert 0 == code and "It is not shown again." in shown and "postroom webhooks test" in shown
    [webhook] = shell.json("webhook", "list", "--room", "room.db")["webhooks"]
    code, shown = Terminal(shell, "webhook", "rotate", webhook["id"], "--room", "room.db").finish()
    assert 0 == code and "signs beside it for a day" in shown
    code, shown = Terminal(shell, "webhook", "list", "--room", "room.db").finish()
    assert 0 == code and "hooks.example.com" in shown


def test_a_name_that_nobody_has_is_reported(shell: Shell) -> None:
    message = shell.run("webhook", "add", "https://hooks.example.com/", "--for", "humann")
    assert "nobody here is called 'humann'; did you mean 'human'?" in message.err and message.out.startswith(
        "whsec_"
    )
    known = shell.run("webhook", "add", "https://hooks.example.com/", "--for", "human")
    assert "nobody" not in known.err


def test_the_options_of_a_webhook_are_kept(shell: Shell) -> None:
    id, _ = added(shell, "http://127.0.0.1:8088/x", "--allow-private", "--min-priority", "urgent")
    [webhook] = shell.json("webhook", "list")["webhooks"]
    expected = {"id": id, "mailbox": "human", "min_priority": "urgent", "allow_private": True, "off_at": None}
    assert expected.items() <= webhook.items() and not {"secret", "former_secret"} & webhook.keys()


def test_a_test_calls_and_says_what_came_of_it(shell: Shell) -> None:
    with Receiver() as receiver:
        id, secret = added(shell, receiver.url("127.0.0.1"), "--allow-private")
        result = shell.json("webhook", "test", id)
        assert (True, 204, None) == (result["rung"], result["status"], result["problem"])
        [call] = receiver.calls
        assert "mail.test" == call.json["type"]
        signed = sign(secret, call.id, int(call.headers["webhook-timestamp"]), call.body)
        assert signed == call.headers["webhook-signature"]
        receiver.answers.append(Answer(401))
        failed = shell.run("webhook", "test", id)
        assert 75 == failed.code and "was not rung: it answered 401 Unauthorized" in failed.out
    refused = shell.run("webhook", "test", id, "--json")
    assert 75 == refused.code and "127.0.0.1 cannot be reached: Connection refused" == refused.json["problem"]


def test_one_that_is_off_is_on_again_when_a_test_gets_through(shell: Shell) -> None:
    with Receiver() as receiver:
        id, _ = added(shell, receiver.url("127.0.0.1"), "--allow-private")
        with shell.room() as room:
            perform(room.core, OWNER, webhooks.SwitchWebhook(id=id, off="it answered 410 Gone"))
        assert "it answered 410 Gone" in shell.run("webhook", "list").out
        receiver.answers.append(Answer(410))
        assert 75 == shell.run("webhook", "test", id).code
        assert shell.json("webhook", "list")["webhooks"][0]["off_at"]
        assert shell.json("webhook", "test", id)["webhook"]["off_at"] is None


@pytest.mark.parametrize(("words", "code", "field"), [
    (["add", "http://hooks.example.com/", "--for", "human"], 65, "url"),
    (["add", "https://127.0.0.1/", "--for", "human"], 65, "url"),
    (["add", "https://ann:x@hooks.example.com/", "--for", "human"], 65, "url"),
    (["add", URL, "--for", "../x"], 65, "for"),
    (["add", URL, "--for", "human", "--min-priority", "low"], 64, "--min-priority"),
    (["test", "nobody"], 67, "id"),
    (["rotate", "nobody"], 67, "id"),
    (["remove", "nobody"], 67, "id"),
])  # fmt: skip
def test_what_is_wrong_is_reported(shell: Shell, words: list[str], code: int, field: str) -> None:
    done = shell.run("webhook", *words, "--json")
    assert (code, field) == (done.code, done.error["field"])


def test_ids_are_completed(shell: Shell) -> None:
    id, _ = added(shell)
    assert [id] == shell.run("__complete", "--", "webhook", "test", "").out.split()

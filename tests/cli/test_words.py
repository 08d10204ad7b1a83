"""From words to a command: forgiving where it is safe, plain where it is not."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.cli.command import TEXT, command_of, with_common
from postroom.cli.parse import parse
from postroom.cli.table import COMMANDS, FORMER, GROUPS, resolve
from postroom.cli.tasks import WHY
from postroom.errors import Invalid, PostroomError
from tests.cli.shell import Shell


def values(*words: str) -> dict[str, Any]:
    return parse(words).values


def test_options_may_stand_anywhere_and_in_every_form() -> None:
    expected = {"as": "ann", "to": "bob", "subject": "x y", "json": True}
    for words in (
        ("--as", "ann", "send", "bob", "--subject", "x y", "--json"),
        ("send", "--as=ann", "-s", "x y", "--json", "bob"),
        ("--json", "send", "-sx y", "bob", "--as", "ann"),
        ("send", "--json", "--as=ann", "--subject=x y", "--", "bob"),
    ):
        assert values(*words) == expected


def test_words_after_two_dashes_are_no_options() -> None:
    assert values("unsend", "--as", "a", "--", "--json", "-x")["id"] == ["--json", "-x"]
    assert values("work", "--loop", "--", "ls", "-l", "--", "x")["command"] == ["ls", "-l", "--", "x"]


def test_a_value_may_begin_with_a_dash_unless_it_is_an_option_itself() -> None:
    assert values("send", "bob", "--subject", "-5 degrees")["subject"] == "-5 degrees"
    assert values("send", "bob", "--subject=--json") == {"to": "bob", "subject": "--json"}
    with pytest.raises(Invalid, match="needs a value"):
        parse(("send", "bob", "--subject", "--json"))
    assert values("send", "bob", "--body", "-")["body"] == "-"


def test_commands_of_two_words() -> None:
    assert parse(("dead",)).name == "dead"
    assert parse(("dead", "revive", "a", "b")).values == {"ids": ["a", "b"]}
    assert parse(("agents", "show", "show")).values == {"name": "show"}
    assert parse(("--version",)).name == parse(("-V",)).name == "version"
    assert parse(()).command is None


def test_places_share_words() -> None:
    assert values("forward", "m-1", "bob", "carol") == {"id": "m-1", "to": ["bob", "carol"]}


@pytest.mark.parametrize(
    ("words", "field", "hint"),
    [
        (("sned",), "command", "did you mean 'send'?"),
        (("xyzzy",), "command", "postroom help all"),
        (("",), "command", "postroom help"),
        (("__complet",), "command", "did you mean 'completion'?"),
        (("done", "a"), "command", "postroom ack ID settles a letter; postroom tasks complete ID finishes a task"),
        (
            ("mail",),
            "command",
            "commands for mail stand alone: postroom send NAME TEXT, postroom check, postroom read ID",
        ),
        (("dead", "--all"), "--all", "did you mean '--everyone'?"),
        (("reply", "a", "hi", "you"), "arguments", "quote a text that has blanks; or name it with --body"),
        (
            ("check", "bob"),
            "arguments",
            "it takes options alone: --as bob names the agent, --help shows the others",
        ),
        (
            ("tokens", "create", "web"),
            "arguments",
            "it takes options alone: --agent web names the agent, --help shows the others",
        ),
        (("tokens", "create", "--name", "web"), "--name", "--agent NAME names the agent"),
        (
            ("nack", "a"),
            "command",
            "postroom fail ID tries it again later; postroom reject ID makes it a dead letter",
        ),
        (("send", "b", "x", "--ttl", "1h"), "--ttl", "--expires SPAN says for how long the letter is offered"),
        (("forward", "a", "carl", "have a look"), "TO", "a text has an option, such as --body"),
        (("wait", "10s"), "arguments", "--timeout 10s"),
        (("claim", "5"), "arguments", "--count 5"),
        (("doctor", "fix"), "arguments", "--repair mends what is safe to mend"),
        (("serve", "--port", "80"), "--port", "the address and the port are one: --http 127.0.0.1:4651"),
        (("sendmal",), "command", "did you mean 'send'?"),
        (("claim", "--ttl", "5m"), "--ttl", "--lease SPAN says for how long the claim is yours"),
        (("search", "x", "--from", "coder"), "--from", "it stands in the query: from:NAME"),
        (("send", "--subjct", "x"), "--subjct", "did you mean '--subject'?"),
        (("send", "--qqqqq"), "--qqqqq", "--help shows all"),
        (("read",), "ID", "the letter's id, as check shows it, or how it begins"),
        (("read", "a", "b"), "arguments", "it takes ID alone"),
        (("fail", "a"), "--reason", "why"),
        (
            ("tasks", "nosuch"),
            "command",
            "postroom tasks show nosuch shows one; else tasks show, give, accept, admit, reject, start, ask, answer,"
            " complete, fail, cancel",
        ),
        (("dead", "nosuch"), "command", "postroom dead show nosuch shows one; else dead show, revive, purge"),
        (("dead", "--as", "a", "show"), "command", "postroom dead show …"),
        (("work", "--as", "a", "wc", "-w"), "-w", "put -- before the program"),
        (("work", "-w"), "-w", "--help shows all"),
        (
            ("search", "-stable"),
            "-stable",
            "-- stands before a query that begins with -: postroom search -- -stable",
        ),
        (("search", "--rankd"), "--rankd", "did you mean '--ranked'?"),
        (("check", "-n", "9" * 16), "--limit", "up to 15 digits"),
        (("check", "--peek=yes"), "--peek", None),
        (("check", "--as", "a", "--as", "b"), "--as", None),
        (("check", "--as"), "--as", "--as=NAME"),
        (("completion", "tcsh"), "SHELL", "bash, zsh, fish"),
    ],
)
def test_mistakes_are_named_with_what_was_meant(words: tuple[str, ...], field: str, hint: str | None) -> None:
    with pytest.raises(Invalid) as wrong:
        parse(words)
    assert (wrong.value.field, wrong.value.hint) == (field, hint)


SPANS = [
    ("90", 90.0),
    ("90s", 90.0),
    ("10m", 600.0),
    ("1h30m", 5400.0),
    ("1.5h", 5400.0),
    ("2d", 172800.0),
    ("1w", 604800.0),
]


@pytest.mark.parametrize(("text", "meant"), SPANS)
def test_spans_of_time(text: str, meant: float) -> None:
    assert values("wait", "--timeout", text)["timeout"] == meant
    assert values("send", "bob", "--at", text)["at"] == meant


def test_times() -> None:
    result = values("send", "bob", "--at", "2030-01-31T09:00:00+02:00")["at"]
    assert result == datetime(2030, 1, 31, 7, tzinfo=UTC)
    assert values("send", "bob", "--at", "2030-01-31 09:00")["at"].tzinfo is not None
    assert values("check", "--since", "2h")["since"] < datetime.now(UTC)


BAD = [
    ("wait", "--timeout", "soon"), ("wait", "--timeout", "-1"), ("wait", "--timeout", "1e5"),
    ("wait", "--timeout", ""),
    ("wait", "--timeout", "١٢"), ("send", "b", "--at", "yesterday"), ("send", "b", "--at", "2030-13-01"),
    ("check", "--since", "99999999999w"), ("check", "-n", "-1"),
    ("check", "-n", "1.5"), ("check", "-n", "٣"), ("check", "-n", "9" * 40), ("send", "b", "--data", "{"),
    ("send", "b", "--data", "[" * 100_000), ("send", "b", "--data", '{"a":1,"a":2}'),
    ("send", "b", "--data", "NaN"),
    ("check", "--set", "lease"), ("check", "--set", "=1"), ("check", "--color", "blue"),
]  # fmt: skip


@pytest.mark.parametrize("words", BAD, ids=lambda words: " ".join(words)[:40])
def test_a_value_that_means_nothing_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(Invalid) as wrong:
        parse(words)
    assert wrong.value.field == {"-n": "--limit"}.get(words[-2], words[-2])


OPTIONS = sorted(
    {name for name in COMMANDS for option in with_common(command_of(name).options) for name in option.names}
)
WORDS = st.one_of(
    st.sampled_from([*COMMANDS, *FORMER, *OPTIONS, "--", "-", "--as=x", "m-1"]),
    st.text(max_size=8),
    st.text(alphabet=st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF), max_size=3),
)


def refused(words: list[str]) -> PostroomError | None:
    try:
        parse(words)
    except PostroomError as error:
        return error
    return None


@given(words=st.lists(WORDS, max_size=7))
def test_any_words_are_understood_or_refused(words: list[str]) -> None:
    error = refused(words)
    assert error is None or error.field


# -- the table itself


@pytest.mark.parametrize("name", [name for names in GROUPS.values() for name in names])
def test_every_command_is_declared_whole(name: str) -> None:
    command = command_of(name)
    assert command.name == name
    assert command.summary[0].islower() and not command.summary.endswith(".")
    assert command.examples and command.json
    options = with_common(command.options)
    assert all(option.help for option in options)
    named = [option.name for option in options if option not in {TEXT, WHY}]  # the same as --body and --reason
    spelt = [spelling for option in options for spelling in option.names]
    assert len(named) == len(set(named))
    assert len(spelt) == len(set(spelt))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("token", "list"), "tokens"),
        (("tokens", "ls"), "tokens"),
        (("tasks", "list"), "tasks"),
        (("task",), "tasks"),
        (("peer", "rm"), "peers remove"),
        (("webhook", "new"), "webhooks add"),
        (("template", "delete"), "templates delete"),
        (("agent", "show"), "agents show"),
        (("agents", "register"), "register"),
        (("room",), "rooms"),
        (("room", "info"), "rooms"),
        (("room", "export"), "rooms export"),
        (("export",), "rooms export"),
    ],
)
def test_singular_plural_and_synonyms_mean_the_same_command(words: tuple[str, ...], name: str) -> None:
    assert resolve(*words, *("",) * (2 - len(words)))[::2] == (name, len(words))


def test_names_of_earlier_versions_work_and_answer_by_their_name() -> None:
    for former, name in FORMER.items():
        call = parse((*former.split(), "--help"))
        assert (call.name, call.command) == (former, command_of(name))


WRONG_GUESSES = [
    (("send", "--to", "bob"), "postroom send NAME"),
    (("send", "bob", "-m", "hi"), "--body TEXT"),
    (("delete", "m-1"), "postroom ack"),
    (("whoami",), "--as"),
    (("list",), "postroom check"),
    (("rooms", "copy", "a", "b", "--move"), "retired"),
    (("sedn", "bob"), "'send'"),
    (("who",), "postroom agents"),
    (("settle", "m-1"), "postroom ack"),
    (("dead", "rm", "m-1"), "postroom dead purge"),
    (("mail", "send", "bob", "hi"), "postroom send NAME"),
    (("inbox", "list"), "postroom check"),
    (("agents", "bob"), "postroom agents show bob"),
    (("room", "stats"), "postroom stats"),
    (("wait", "--for", "3"), "--timeout SPAN"),
]


@pytest.mark.parametrize(("words", "hint"), WRONG_GUESSES)
def test_a_wrong_guess_gets_the_right_hint(words: tuple[str, ...], hint: str) -> None:
    with pytest.raises(Invalid) as wrong:
        parse(words)
    assert hint in (wrong.value.hint or "")


TOY = """
import sys
from typing import Annotated
from msgspec import Struct
from postroom.core.verb import MailboxVerb, verb

class Toys(Struct):
    mailbox: str
    toys: list[str]

@verb("toy_box", Toys, action="check", writes=False)
class ToyBox(MailboxVerb, kw_only=True):
    "Return toys of one colour."

    colour: Annotated[str, "which colour"]
    limit: Annotated[int, "how many at most"] = 2

    def run(self, core, _principal):
        return Toys(self.agent_id, [self.colour] * self.limit)

from postroom.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_verb_is_a_command_without_a_line_of_the_command_line(shell: Shell) -> None:
    def toy(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", TOY, *words]
        return subprocess.run(
            line, env=shell.environment, cwd=shell.home, capture_output=True, text=True, check=False
        )

    done = toy("toy-box", "red", "-n", "3", "--as", "ann", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = {"schema": 1, "command": "toy-box", "mailbox": "ann", "toys": ["red", "red", "red"]}
    assert json.loads(done.stdout) == answer
    assert "red, red" in toy("toy-box", "red", "--as", "ann").stdout
    shown = toy("toy-box", "--help").stdout
    assert "postroom toy-box - return toys of one colour" in shown
    assert "which colour" in shown and "how many at most; 2 by default" in shown
    assert toy("toy-box", "--as", "ann").returncode == 64
    assert "toy-box" in toy("__complete", "--", "toy").stdout.split()
    assert "--limit" in toy("__complete", "--", "toy-box", "--l").stdout.split()
    assert "toy-box" in toy("help", "verbs").stdout
    hint = toy("toy-bxo").stderr
    assert "did you mean 'toy-box'?" in hint


def test_a_long_list_is_begun_and_says_how_to_see_the_rest(shell: Shell) -> None:
    with shell.room() as room:
        for number in range(203):
            room.mailbox(f"agent-{number}").register()
    shown = shell.run("agents").out
    assert shown.endswith("… and 3 more: --limit N shows so many, --json all\n")
    assert "more" not in shell.run("agents", "--limit", "300").out
    assert len(shell.json("agents")["agents"]) == 203
    assert len(shell.json("agents", "-n", "5")["agents"]) == 5

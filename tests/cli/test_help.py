"""Help, the page of commands and what runs have one source: every example is run, every page is true."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import postroom
from postroom.chipset import Chipset
from postroom.cli.command import command_of
from postroom.cli.help import WIDEST, manual
from postroom.cli.table import EVERYDAY, FORMER, GROUPS
from postroom.core import peers, tokens, webhooks
from postroom.core.key_file import KeyFile
from postroom.core.people import AddPerson
from postroom.core.verb import perform
from tests.cli.shell import Shell
from tests.cli.terminal import show
from tests.conftest import LONG
from tests.people import key_file
from tests.rooms import FakeClock

HOME = Path(__file__).parent.parent.parent
COMMANDS = [name for names in GROUPS.values() for name in names]
EXAMPLES = [(name, line) for name in COMMANDS for line, _ in command_of(name).examples]


def test_the_page_of_commands_is_what_the_commands_declare() -> None:
    page = runpy.run_path(str(HOME / "tools" / "commands.py"))["page"]()
    assert page == (HOME / "docs" / "commands.md").read_text(encoding="utf-8")


def test_every_field_of_a_letter_in_json_is_explained(shell: Shell) -> None:
    page = (HOME / "docs" / "commands.md").read_text(encoding="utf-8")
    table = page.partition("\n## Letters\n")[2].partition("\n## ")[0]
    explained = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    )
    shell.post("ann", "bob", "hello", id="m-1")
    letter = shell.json("claim", "--as", "bob")["letters"][0]
    assert set(letter) == explained and {"proven", "proof"} < explained


def test_the_overview_names_every_command(shell: Shell) -> None:
    shown = shell.run("help", "all")
    assert (0, "") == (shown.code, shown.err)
    for title, names in GROUPS.items():
        assert title.upper() in shown.out
        for name in names:
            assert f"\n  {name} " in shown.out
    assert "__complete" not in shown.out
    assert not any(f"\n  {former} " in shown.out for former in FORMER)
    assert "\n  tasks complete    " in shown.out
    for variable in ("POSTROOM_AGENT", "POSTROOM_STORE", "POSTROOM_TOKEN", "POSTROOM_LEASE"):
        assert variable in shell.run("help", "options").out.partition("\nENVIRONMENT\n")[2]


def test_the_first_page_is_short_and_says_where_the_rest_is(shell: Shell) -> None:
    shown = shell.run()
    assert (0, "") == (shown.code, shown.err)
    assert shell.run("help").out == shell.run("--help").out == shown.out
    assert len(EVERYDAY) <= 35 and len(shown.out.splitlines()) < 50
    assert "postroom help all" in shown.out and "postroom help COMMAND" in shown.out
    for name in ("send", "check", "reply", "claim", "ack"):
        assert f"\n  {name} " in shown.out


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_help_fits_the_terminal(shell: Shell, columns: int) -> None:
    for command in (["help"], ["help", "all"], ["help", "send"], ["help", "tasks"], ["help", "doctor"]):
        _, shown = show(shell, *command, columns=columns)
        text = "".join(shown.partition("\nEXAMPLES\n")[::2]).partition("\nUSAGE\n")[2]
        assert max(map(len, text.splitlines())) <= min(columns, 92), text


@pytest.mark.parametrize("name", ["tasks", "dead", "templates", "agents"])
def test_help_lists_what_may_follow(shell: Shell, name: str) -> None:
    listed = shell.run("help", name).out.partition("\nCOMMANDS\n")[2].partition("\n\n")[0]
    names = [full for full in COMMANDS if full.startswith(f"{name} ")]
    assert all(line.strip().startswith(f"{full}  ") for line, full in zip(listed.split("\n"), names, strict=True))
    assert "\nCOMMANDS\n" not in shell.run("help", "send").out


def test_json_and_defaults_are_reported(shell: Shell) -> None:
    shown = shell.run("help", "send").out
    for name in ("task", "callback", "context", "metadata", "extra", "data"):
        assert f"\n  --{name} JSON" in shown
    words = " ".join(shown.split())
    assert "how urgent; normal by default" in words and "default: message" in words


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    shown = manual(command_of(name), WIDEST)
    assert shown.startswith(f"postroom {name} - ")
    assert shown.index("\nEXAMPLES\n") < shown.index("\nUSAGE\n") < shown.index("\npostroom help options")
    for option in command_of(name).options:
        assert option.names[-1] in shown
    assert max(map(len, shown.splitlines())) <= 130


def test_every_command_can_be_asked_to_explain_itself(shell: Shell) -> None:
    """One of each file: what it takes must not be in the way of --help."""
    for first, *_ in GROUPS.values():
        shown = shell.run(*first.split(), "--help")
        assert (0, "", manual(command_of(first), WIDEST)) == (shown.code, shown.err, shown.out)


def test_help_of_a_command_in_each_way(shell: Shell) -> None:
    shown = shell.run("help", "dead", "revive").out
    assert shown == shell.run("dead", "revive", "-h").out
    assert shell.run("help", "nonsense").code == 64
    (result,) = shell.json("help", "send")["commands"]
    assert result["name"] == "send"
    assert {"names": ["--at"], "kind": "when"}.items() <= next(
        o for o in result["options"] if o["names"] == ["--at"]
    ).items()


@pytest.mark.parametrize("name", ["service", "install", "uninstall", "hook"])
def test_a_first_word_alone_asks_which_one_and_its_help_lists_them(shell: Shell, name: str) -> None:
    names = [full for full in COMMANDS if full.startswith(f"{name} ")]
    request = shell.run(name, "--json")
    words = ", ".join(full.partition(" ")[2] for full in names)
    assert (64, name, f"which one? {words}") == (request.code, request.error["field"], request.error["message"])
    shown = shell.run("help", name)
    assert (0, "") == (shown.code, shown.err)
    assert all(f"\n  {full} " in shown.out for full in names)
    assert shown.out == shell.run(name, "--help").out == shell.run("--as", "ann", name, "-h").out
    assert names == [result["name"] for result in shell.json("help", name)["commands"]]


def test_a_second_word_that_is_misspelt_is_guessed(shell: Shell) -> None:
    assert "did you mean 'hook prompt'?" == shell.run("hook", "promt", "--json").error["hint"]
    assert "did you mean 'tokens create'?" == shell.run("--as", "ann", "token", "creat", "--json").error["hint"]
    assert 64 == shell.run("token", "--agent", "bob").code


def test_an_agents_token_is_never_an_operators(shell: Shell) -> None:
    refused = shell.run("token", "create", "--agent", "bob", "--scope", "operator", "--json")
    assert (65, "operator is for tokens without an agent") == (refused.code, refused.error["message"])


def test_help_has_no_links_and_the_first_page_names_the_service(shell: Shell) -> None:
    for words in (["help", "mcp"], ["help", "send"]):
        assert "](" not in shell.run(*words).out
    first = shell.run("help").out
    assert all(f"\n  {name} " in first for name in ("serve", "mcp", "tokens create"))


@pytest.fixture
def prepared(shell: Shell, example: Shell) -> Shell:
    """A copy of the room the examples speak of."""
    shutil.copytree(example.home, shell.home, dirs_exist_ok=True)
    shell.environment |= {
        name: example.environment[name] for name in ("TOKEN", "TOKEN_ID", "KEY_ID", "WEBHOOK_ID", "ESCALATION")
    }
    shell.environment["POSTROOM_HUMAN_KEY"] = str(shell.home / ".config" / "postroom" / "human.key")
    shell.environment["POSTROOM_HOOK_SECONDS"] = "30"  # a busy machine is not the point
    return shell


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A team, some letters, one of them held, one of them dead."""
    shell = Shell(tmp_path_factory.mktemp("example"))
    with shell.room() as room:
        for name in ("coder", "researcher", "reviewer", "planner", "tester"):
            quota = 9 if name == "reviewer" else None
            room.mailbox(name).register(scopes=["sorting"], capabilities=["python"], max_concurrent_tasks=quota)
        coder, researcher = room.mailbox("coder"), room.mailbox("researcher")
        coder.send("researcher", "Which sort is stable?", id="m-1", thread_tag="release")
        coder.send("researcher", "And fast?", id="m-2")
        researcher.reply("m-2", "Quicksort.", id="m-3")
        coder.send("researcher", "Held.", id="m-5", priority="urgent")
        room.mailbox("planner").send("coder", "Sort it.", id="m-4", kind="request", priority="high")
        held = researcher.claim(lease=600)
        assert held and held.delivery.lease
        shell.environment["TOKEN"] = held.delivery.lease.token
        room.mailbox("planner").send("tester", "Broken.", id="m-6")
        room.mailbox("tester").read("m-6").reject("cannot be read")
        prepare_mail_management(shell, room)
        prepare_folders(shell, room)
        prepare_chipset(shell)
        (shell.home / "room.jsonl").write_bytes(b"".join(line + b"\n" for line in room.export()))
        room.backup(shell.home / "monday.db")
    return shell


def prepare_folders(shell: Shell, room: postroom.Room) -> None:
    """Two of other designs, one of which is mounted."""
    for name in ("mail", "chips"):
        (shell.home / name).mkdir()
    place = f"files:{shell.home / 'chips'}?layout=chipset"
    perform(
        room.core,
        room.principal,
        peers.Mount(system="chips", place=place, ours=room.system, room=room.settings.store),
    )


def prepare_chipset(shell: Shell) -> None:
    """One agent with pending work, one at work who was nudged, one who is done."""
    clock = FakeClock()
    clock.jump(-timedelta(days=5000).total_seconds())
    with Chipset(shell.home / ".chipset" / "state", clock=clock, durable=False) as chipset:
        for name in ("alpha", "beta", "gamma"):
            chipset.mayor().dispatch(f"polecat-{name}", f"gt-{name}", body="As in the plan.")
        for name in ("polecat-beta", "polecat-gamma"):
            chipset.hooks.activate(name)
        chipset.report("polecat-gamma")
        chipset.nudges.send("witness", "polecat-beta", "health_check", requires_response=True)


def prepare_mail_management(shell: Shell, room: postroom.Room) -> None:
    """Four tasks, each one step further; an escalation; a template; somebody who is blocked."""
    planner, reviewer = room.mailbox("planner"), room.mailbox("reviewer")
    for id in ("t-1", "t-2", "t-3", "t-4"):
        planner.give_task("reviewer", "Review sort.py", id=id, deadline=3600)
    for id in ("t-2", "t-3", "t-4"):
        reviewer.task(id).accept()
    for id in ("t-3", "t-4"):
        reviewer.task(id).start()
    reviewer.task("t-4").ask("Which branch?")
    room.mailbox("coder").escalate("No access.", reason="blocked")
    shell.environment["ESCALATION"] = room.escalations()[0].id
    room.save_template("review", subject="Review {file}", body="Please look at {file}.")
    room.mailbox("coder").block("spammer")
    perform(room.core, room.principal, peers.AddPeer(system="paris", fields={}))
    (shell.home / "rome.token").write_text("prp_from-rome\n", encoding="utf-8")
    address = "wss://mail.example.com:4650/map"
    said = peers.Invitation(system="rome", guest=room.system, url=address, token="prp_from-rome")  # noqa: S106
    (shell.home / "invitation").write_text(peers.write_invitation(said), encoding="utf-8")
    url = "http://127.0.0.1:1024/"  # where nobody listens
    webhook = perform(room.core, room.principal, webhooks.AddWebhook(url=url, mailbox="human", allow_private=True))
    shell.environment["WEBHOOK_ID"] = webhook.id
    token = perform(room.core, room.principal, tokens.CreateToken(agent="coder")).token
    shell.environment["TOKEN_ID"] = token.id
    shell.sign()
    me = KeyFile(shell.environment["POSTROOM_HUMAN_KEY"])
    other = AddPerson(person="human", key=key_file("other").public())
    shell.environment["KEY_ID"] = perform(room.core, replace(room.principal, signer=me), other).id


# In the short form the first of each command.
RUN = EXAMPLES if LONG else [*{name: (name, line) for name, line in reversed(EXAMPLES)}.values()]


@pytest.mark.disk  # the doctor warns of rooms in memory
@pytest.mark.parametrize(("name", "line"), RUN, ids=[line for _, line in RUN])
def test_every_example_runs_as_it_stands(prepared: Shell, name: str, line: str) -> None:
    if name == "rooms export":
        (prepared.home / "room.jsonl").unlink()
    if line == "postroom rooms backup monday.db":
        (prepared.home / "monday.db").unlink()
    if name == "nanobot doctor":  # nanobot is not installed here, and it says so
        line = f"{line} || test $? -eq 70"
    if name in {"peers ping", "dashboard"}:  # nobody serves it here, and it says so
        line = f"{line} 2>/dev/null || test $? -eq 75"
    if name == "webhooks test":  # nobody answers
        line = f"{line} || test $? -eq 75"
    shows_secret = {"peers add", "peers invite", "peers trust", "webhooks add", "webhooks rotate", "tokens create"}
    if name in shows_secret:  # what it is for is said beside it
        line = f"{line} 2>/dev/null"
    if name == "serve":  # until it is stopped; somebody may be at the usual port
        line = f"POSTROOM_HTTP=127.0.0.1:0 timeout -s INT --preserve-status 3 {line} 2>/dev/null"
    done = prepared.type(line)
    assert (done.code, done.err) == (0, ""), done


RUN_SIMPLY = [
    "send carol --as ann --body x", "broadcast team --as ann --body x", "handoff carol --as ann --done x",
    "register --as ann --scope team", "check --as bob --peek", "read m-1 --as bob", "sent --as ann", "counts --as bob",
    "search x --as bob", "thread m-1 --as bob", "threads --as bob", "conversations --as bob", "dead --as bob", "digest --as bob", "agents",
    "room", "changes", "janitor", "archive", "purge", "copy room.db other.db", "export out.jsonl", "backup out.db", "stats",
    "trace m-1", "doctor", "top --once", "witness --once", "tasks --as bob", "templates", "escalations --as ann", "waiting --as bob",
    "claim --as bob", "heartbeat --as ann", "block eve --as ann", "unblock eve --as ann", "help", "help send", "version",
    "completion bash", "init", "forward m-1 dave --as bob", "reply m-1 --as bob --body y",
    "escalate --as ann --reason blocked --body x --ladder ann --ladder carol",
    "peers add berlin", "peers list", "peers show berlin", "peers trust berlin --rotate", "peers remove berlin", "mount files:mail?layout=nanobot --as nanobot", "unmount nanobot",
    "webhook add https://hooks.example/ --for bob", "webhook list",
    "install codex --dry-run", "install codex --yes", "uninstall codex --yes",
    "chipset dispatch alpha gt-1", "chipset check --as alpha", "chipset hooks", "chipset remind alpha", "chipset activate --as alpha",
    "chipset touch --as alpha", "chipset nudge alpha --as ann", "chipset answer --as alpha", "chipset handle --as ann",
    "chipset note --as alpha --bead gt-1 --summary x", "chipset notes --as alpha", "chipset report --as alpha", "chipset accept alpha",
    "chipset dispatch alpha gt-2", "chipset clear alpha",
    "tasks give bob --as ann --body x", "templates save t --body x", "templates show t",
]  # fmt: skip


def test_json_holds_exactly_the_fields_that_the_command_names(shell: Shell) -> None:
    shell.json("register", "--as", "bob", "--scope", "team")
    shell.post("ann", "bob", "x", id="m-1")
    (shell.home / "mail").mkdir()
    for words in (line.split() for line in RUN_SIMPLY):
        done = shell.run(*words, "--json")
        assert done.code in {0, 1}, (words, done)
        result = json.loads(done.out)
        fields = set(command_of(FORMER.get(result["command"], result["command"])).json)
        assert result.keys() - {"schema", "command"} == fields - {"receipts"}, (
            words
        )  # those are of several letters


def test_who_has_nobody_above_is_reported_as_invalid(shell: Shell) -> None:
    alone = shell.run("escalate", "--as", "ann", "--reason", "blocked", "--body", "x", "--ladder", "ann", "--json")
    assert (alone.code, alone.error["field"]) == (65, "ladder")

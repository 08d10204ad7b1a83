"""The command line: commands and options, exit codes by error, and the fields of every `--json` answer.

The wording of help and errors is not pinned.
"""

# ruff: noqa: E501 - lines as they are typed

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Template
from typing import Any

import pytest

from tests.cli.shell import Shell
from tests.pinned.pins import check_pin, shape

# One room, from its first letter to its last. `name =` keeps the answer for later lines, which use `$name`: the
# first id, token or cursor that it holds, or `$name_field` for one of its fields.
SCENARIO = r"""
    version
    room
    check --as bob
    register --as ann --name Ann --description 'asks' --capability python --scope team --program test --model none --metadata '{"a": 1}'
    register --as bob --scope team --max-tasks 2
    heartbeat --as bob --task 'reading' --active
    agents
    agents show bob
    m1 = send bob --as ann --body hello -s Greeting -p high --cc cy --tag x --key k-1 --letter-id m-1 --data '{"n": 1}' --metadata '{"a": 1}' --callback '{"c": 1}' --context '{"d": 1}' --attachment file-1 --reference https://example.org/x --conversation c-1 --scope team --thread-tag tt
    send bob --as ann --body hello -s Greeting -p high --cc cy --tag x --key k-1 --letter-id m-1 --data '{"n": 1}' --metadata '{"a": 1}' --callback '{"c": 1}' --context '{"d": 1}' --attachment file-1 --reference https://example.org/x --conversation c-1 --scope team --thread-tag tt
    send any:python --as bob --body routed --letter-id m-2
    send bob --as ann --body later --at 1h --letter-id m-3
    send bob --as ann --body 'soon gone' --expires 1h --letter-id m-4
    counts --as bob
    digest --as bob
    check --as bob --peek
    read m-1 --as bob
    reply m-1 --as bob --body answer --letter-id m-5
    forward m-1 dora --as bob --body look --letter-id m-6
    broadcast team --as ann --body all --letter-id m-7
    handoff bob --as ann --done 'half' --next 'the rest' --letter-id m-8
    sent --as ann
    thread m-1 --as ann
    threads --as ann
    tagged tt --as ann
    conversations --as ann
    conversation c-1 --as ann
    turns c-1 --as ann
    search hello --as bob
    search hello --as bob --ranked
    wait --as bob --timeout 0
    wait --as dora --timeout 1
    claimed = claim --as bob --count 2 --lease 60
    renew $claimed_id --as bob --token $claimed --lease 90
    release $claimed_id --as bob --token $claimed
    claimed = claim --as bob
    fail $claimed_id --as bob --token $claimed --reason 'not now'
    claimed = claim --as bob
    ack $claimed_id --as bob --token $claimed --reply 'done'
    reject m-6 --as dora --reason 'no thanks'
    dead --as dora
    dead show m-6 --as dora
    dead revive m-6 --as dora
    reject m-6 --as dora --reason 'still not'
    dead purge m-6 --as dora
    unsend m-3 --as ann
    tasks give bob --as ann -s Sort --body 'sort it' --deadline 1h --letter-id t-1
    tasks accept t-1 --as bob
    tasks start t-1 --as bob
    tasks ask t-1 --as bob --body 'which way?'
    tasks answer t-1 --as ann --body 'up'
    tasks show t-1 --as ann
    tasks --as bob
    tasks complete t-1 --as bob --body sorted --data '{"rows": 10}'
    tasks give bob --as ann --body 'second' --letter-id t-2
    tasks admit t-2 --as bob
    tasks fail t-2 --as bob --reason broken
    tasks give bob --as ann --body 'third' --letter-id t-3
    tasks accept t-3 --as bob
    tasks cancel t-3 --as ann --reason 'not needed'
    tasks give bob --as ann --body 'fourth' --letter-id t-4
    tasks reject t-4 --as bob --reason busy
    tasks give human --as ann --body 'fifth' --letter-id t-5
    asked = escalate --as bob --reason blocked --ladder ann --ladder human --body 'No access' --letter-id e-1
    escalations --as bob
    resolve $asked_escalation_id --as bob
    send human --as ann --body 'for you' --letter-id m-9
    waiting
    inbox
    templates save review --body 'Look at {file}.' --kind request -p high
    templates
    templates show review
    send bob --as ann --template review --fill file=sort.py --letter-id m-10
    templates delete review
    block cy --as bob
    block --as bob
    unblock cy --as bob
    watch --as bob --backlog --once --timeout 1
    rings --as bob
    leave --as ann --dormant
    doctor
    stats --as bob
    stats --all
    top --once
    trace m-1 --as ann
    now = room
    changes
    changes $now --limit 3
    janitor
    archive --older-than 30d
    purge --older-than 30d
    export letters.jsonl
    import letters.jsonl --room other.db
    copy room.db copy.db
    backup backup.db
    restore backup.db --room restored.db
    token create --agent bob --note 'a test'
    listed = token list
    token revoke $listed_id
    token unseal --agent bob
    peers add far
    peers list
    peers show far
    peers remove far
    webhook add http://127.0.0.1:9999/x --for bob --allow-private
    added = webhook list
    webhook rotate $added_id
    webhook remove $added_id
    mount 'files:folder?layout=nanobot' --as nano
    unmount nano
    install agent-inbox-shim --folder bin --dry-run
    uninstall agent-inbox-shim --folder bin --dry-run
    install claude --agent bob --dry-run
    install codex --agent bob --dry-run
    install gemini --agent bob --dry-run
    uninstall claude --dry-run
    chipset dispatch dora b-1 --title Sort --body 'sort it' --as mayor --state state
    chipset check --as dora --state state
    chipset hooks --state state
    chipset activate --as dora --state state
    chipset touch --as dora --state state
    chipset nudge dora --as mayor --body 'well?' --requires-response --state state
    chipset answer --as dora --body 'soon' --state state
    chipset nudge dora --as mayor --body 'and?' --state state
    chipset handle --as dora --state state
    chipset note --as dora --bead b-1 --summary 'half done' --remaining rest --state state
    chipset notes --as dora --state state
    chipset report --as dora --body done --state state
    chipset accept dora --as mayor --state state
    chipset dispatch dora b-2 --title Two --as mayor --state state
    chipset clear dora --as mayor --state state
    witness --once --state state
    swarm install swarm
    init project
    completion bash
"""

# One command line for each exit code, and more where an error has fields of its own.
MISTAKES = r"""
    check
    nonsense
    send bob --as ann --body x --priority much
    send 'no one' --as ann --body x
    send Bob --as ann --body x
    handoff bob --as ann --from-file nothing.json
    check --as bob --room nowhere.db
    read m-99 --as bob
    agents show nobody
    heartbeat --as nobody
    ack m-1 --as bob --token wrong
    send bob --as ann --body other --key k-1
    send cy --as ann --body x --letter-id m-1
    changes 0:0:1
    backup nowhere/backup.db
    send bob --as ann --body x --set max_mailbox=1
    send bob --as ann --body x --set inbox_quota=1
    send bob --as cy --body x
    tasks start t-1 --as bob
    check --as bob --room 'ftp://x'
    check --as bob --set nonsense=1
    claim --as cy
    wait --as nobody --timeout 0
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, durable=False)


def test_every_command_takes_the_options_it_took(shell: Shell) -> None:
    commands = shell.json("help")["commands"]
    check_pin("commands", {one["name"]: [option_line(option) for option in one["options"]] for one in commands})


def option_line(option: dict[str, Any]) -> str:
    """Show an option's names and what it takes."""
    takes = [", ".join(option["names"]), option["kind"], option["metavar"]]
    return " ".join([*takes, *(word for word in ("many", "required") if option[word])])


def test_the_options_of_every_command_are_as_they_were(shell: Shell) -> None:
    common = shell.run("help", "options").out
    _, _, text = common.partition("OPTIONS OF EVERY COMMAND\n")
    options = re.findall(r"^  (-\S.*?)(?:  .*)?$", text.partition("\n\n")[0], re.MULTILINE)
    text = common.partition("\nENVIRONMENT\n")[2]
    pinned = {
        "options": options,
        "variables": sorted(set(re.findall(r"\b[A-Z]+_[A-Z_]+\b", text))),
        "fields": shape(shell.json("help", "check")),
        "plain": shape(shell.json("help")),
    }
    check_pin("commands-everywhere", pinned)


def test_the_exit_codes_are_as_they_were(shell: Shell) -> None:
    """The page of commands lists them; which error gives which is pinned by what commands do."""
    shell.post("ann", "bob", "hello", key="k-1", id="m-1")
    shell.json("tasks", "give", "bob", "--as", "ann", "--body", "x", "--letter-id", "t-1")
    shell.json("block", "cy", "--as", "bob")
    found = []
    for line in MISTAKES.strip().splitlines():
        done = shell.run(*shlex.split(line), "--json")
        answer = {"out": shape(done.json)} if done.out else {}
        error = {key: done.error[key] for key in ("name", "code", "field", "temporary")} if done.err else None
        fields = sorted(done.error) if done.err else None
        found.append({"line": line.strip(), "exit": done.code, "error": error, "fields": fields, **answer})
    page = (Path(__file__).parent.parent.parent / "docs" / "commands.md").read_text(encoding="utf-8")
    listed = page.partition("## Exit codes")[2].partition("\n## ")[0]
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", listed, re.MULTILINE)]
    check_pin("exit-codes", {"listed": codes, "mistakes": found})


@pytest.mark.disk  # the doctor warns of rooms in memory
def test_the_fields_of_json_answers_are_as_they_were(shell: Shell) -> None:
    for folder in ("folder", "project", "state"):
        (shell.home / folder).mkdir()
    kept: dict[str, str] = {}
    found = []
    for line in SCENARIO.strip().splitlines():
        name, is_kept, command = line.strip().rpartition(" = ") if re.match(r" *\w+ = ", line) else ("", "", line)
        words = shlex.split(Template(command).safe_substitute(kept))
        done = shell.run(*words, "--json")
        assert done.out, (line, done)
        if is_kept:
            kept |= values(name, done.json)
        answer = {**shape(done.json), "command": done.json["command"]}
        if command.strip() == "doctor":  # what it finds depends on the machine
            answer["findings"] = sorted({key for finding in done.json["findings"] for key in finding})
            answer["worst"] = "text"
        found.append({"line": command.strip(), "exit": done.code, "answer": answer})
    check_pin("json-answers", found)


def values(name: str, answer: Any) -> dict[str, str]:
    """The texts that later commands may use."""
    first = next((answer[key][0] for key in ("letters", "tokens", "webhooks") if answer.get(key)), answer)
    found = {f"{name}_{key}": value for key, value in first.items() if isinstance(value, str)}
    main = next((first[key] for key in ("token", "cursor", "id") if isinstance(first.get(key), str)), "")
    return found | {name: main}

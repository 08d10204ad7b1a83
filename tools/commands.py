"""The page docs/commands.md, from the declarations of the commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

from postroom.cli.command import EVERYWHERE, Command, Option, command_of
from postroom.cli.errors import MEANINGS
from postroom.cli.help import named, option_help, usage
from postroom.cli.table import FORMER, GROUPS

SHARED = 3  # commands with the same option; the page explains it once
HEAD = """# Commands

<!-- Written by `make pages` from the commands in src/postroom/cli. -->

`postroom COMMAND [ARGUMENTS] [OPTIONS]`. `postroom help COMMAND` says the same as this page. Begin with
the [quick start](quick-start.md); [the words](index.md#words) are explained there.

- [Every command](#every-command), [shared options](#shared-options), [exit codes](#exit-codes), [rooms](#where-there-is-no-room-yet), [JSON](#json), [ids](#ids), [letters](#letters), [errors](#errors-as-json)
"""
ROOMS = """## Where there is no room yet

A command that has something to store makes the room: a letter, a card, a task, a template. So do the commands that wait
for mail: `wait`, `claim`, `work`. A command that is refused leaves no room behind. A room that is named by `--room` is made
in an existing folder only (else exit 73).

A command that only reads makes no room. If the address comes from `POSTROOM_STORE`, the project or the default, the answer is
that of an empty room; `rooms backup` and `rooms export` end with 66. If the address comes from `--room`, it is probably a
typing error: exit 66. If a project has `.postroom` and its room is gone, the exit code is 78, and `postroom init` makes it
anew.
"""
JSON = """## JSON

With `--json` a command prints one document. Commands that answer repeatedly (`wait --follow`, `work --loop`) print one on each
line. Each document has `schema` (now 1; it grows when a field changes its meaning or goes, not when fields are added), `command`,
and the fields that the command's section lists. All of them are always there; an unknown value is `null`. Times are UTC, such as
`2030-01-31T09:00:00Z`. Ids are always whole.

Notes for people, such as "nobody here is called 'codr'; did you mean 'coder'?", go to standard error, and only without
`--json`.

## Ids

Wherever a command takes a letter's id, the beginning of an id that Postroom made is enough: at least 4 characters, if only one
letter that you may see begins so. Otherwise the candidates are listed and nothing happens (exit 65). An id of your own choice
must be whole.

## Letters

| field | |
|---|---|
| `id`, `sender`, `recipients`, `created_at`, `kind`, `subject`, `parts`, `priority`, `scope`, `expires_at`, `thread_tag`, `thread_id`, `conversation_id`, `in_reply_to`, `hops`, `trace`, `task`, `callback`, `context`, `attachments`, `tags`, `metadata`, `key`, `extra` | as in a [`Message`](reference.md#values); `priority` is a word, `recipients` have `address` and `kind` |
| `text` | all text parts, as one text |
| `thread` | the id of the thread's first letter |
| `delivery` | the state at a mailbox: `mailbox`, `number`, `kind`, `state`, `revision`, `attempts`, `delivered_at`, `read_at`, `acked_at`, `dead_at`, `due_at`, `archived_at`, `expires_at`, `reason`, `history`, `arrived`, and `holder`, who claimed it |
| `proven` | whether its sender showed a token; never of a person |
| `proof` | the signature of the person who wrote it, which the room has checked: `key`, `signature`, `over`, `room`, `recipients`; `null` of any other letter, so mail in a person's name without it is [unproven](people.md#how-agents-know-that-it-is-you) |
| `token`, `lease_seconds` | only from `claim`: the proof of holding the letter, and for how long |

## Errors as JSON

On standard error, `{"schema": 1, "error": {…}}` with `code`, `name`, `message`, `field`, `hint`, `temporary` (whether the same
command can succeed later), `key` (with which to send the same letter again), `retry_after` (in seconds, where it is known) and
`exit`. The names are those of [the library's errors](reference.md#errors), and these of the command line, each a kind of
`Invalid` or `Refused`: `Usage` (code 1901, exit 64), `NoInput` (1902, 66), `CannotCreate` (1903, 73), `Misconfigured` (1904,
78), `Abandoned` (2901, 1).
"""


def page() -> str:
    sections = [HEAD, _index(), _everywhere(), _shared_options(), _exits(), ROOMS, JSON]
    for title, names in GROUPS.items():
        sections.append(f"## {title}\n")
        sections += [_command(command_of(name)) for name in names]
    sections.append(_former())
    return "\n".join(sections)


def _index() -> str:
    rows = [
        f"| [`{name}`](#postroom-{name.replace(' ', '-')}) | {what} |"
        for names in GROUPS.values()
        for name, (_, what) in names.items()
    ]
    return "\n".join(["| command | |", "|---|---|", *rows, ""])


def _everywhere() -> str:
    about = (
        "These options may stand before or after the command's own. `--` ends options: what follows are arguments."
    )
    return "\n".join(["## Every command", "", about, "", *_options(EVERYWHERE), ""])


def _shared_options() -> str:
    about = "These options mean the same in each of the commands that name them."
    options = [option for option in _every() if not option.is_place and _is_shared(option)]
    once = {_key(option): option for option in options}
    return "\n".join(["## Shared options", "", about, "", *_options(once.values()), ""])


def _every() -> list[Option]:
    return [option for names in GROUPS.values() for name in names for option in command_of(name).options]


def _key(option: Option) -> tuple[tuple[str, ...], str, str]:
    return option.names, option.metavar, option.help


@cache
def _counts() -> Counter[tuple[tuple[str, ...], str, str]]:
    return Counter(map(_key, _every()))


def _is_shared(option: Option) -> bool:
    return not option.is_place and _counts()[_key(option)] >= SHARED


def _exits() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in MEANINGS]
    return "\n".join(["## Exit codes", "", "Those of sysexits.", "", "| code | |", "|---|---|", *rows, ""])


def _command(command: Command) -> str:
    lines = [f"### postroom {command.name}", "", f"`{usage(command)}`", "", f"{_sentence(command.summary)}", ""]
    lines += ["```sh", *(f"{line}  # {what}" for line, what in command.examples), "```", ""]
    if command.about:
        lines += [command.about, ""]
    if own := [option for option in command.options if not _is_shared(option)]:
        lines += [*_options(own), ""]
    if shared := [f"`{option.names[-1]}`" for option in command.options if _is_shared(option)]:
        lines += [f"[Shared options](#shared-options): {', '.join(shared)}.", ""]
    if command.json:
        lines += [f"JSON: {', '.join(f'`{name}`' for name in command.json)}.", ""]
    return "\n".join(lines)


def _former() -> str:
    rows = [f"| `{former}` | `{name}` |" for former, name in FORMER.items()]
    about = "These names of earlier versions still work in this version."
    return "\n".join(["## Former names", "", about, "", "| former | now |", "|---|---|", *rows, ""])


def _options(options: Iterable[Option]) -> list[str]:
    rows = [f"| `{_safe(named(option))}` | {_safe(option_help(option))} |" for option in options]
    return ["| option | |", "|---|---|", *rows]


def _safe(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."

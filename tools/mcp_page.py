"""Writes docs/mcp.md from the tables of the MCP server. With --check it only says whether the page is true."""

from __future__ import annotations

import sys
from pathlib import Path

from postroom.mcp.prompts import PROMPTS
from postroom.mcp.resources import TEMPLATES
from postroom.mcp.tools import TOOLS, Arg, Tool, about, arguments

PAGE = Path(__file__).parent.parent / "docs" / "mcp.md"
HEAD = """# Mail for agents that speak MCP

<!-- Written by `make docs` from the tables in src/postroom/mcp. -->

`postroom mcp` is an MCP server on the official SDK. It serves the revisions 2026-07-28 and 2025-11-25, over standard input
and output; a running `postroom serve` serves the same at `/mcp` as streamable HTTP. All scored server scenarios of the
public conformance suite pass in both revisions (`make conformance`: 37 and 30).

```sh
pip install ".[mcp]"  # in the clone
```

`pip install "postroom[mcp]"` works once the package is published on an index, and not before.

The extra wants version 2.3 of `mcp` or later. Where another program needs an older one, give Postroom an environment of its
own, for instance with `pipx install ".[mcp]"` in the clone: a host starts it as a program, and shares nothing with it.

## Tell your host

For Claude Code, Codex and Gemini CLI, `postroom install claude` (or `codex`, or `gemini`) does all of this, and more: by its hooks
[mail is shown to agents by itself](hosts.md), and the server knows whose session it is in. By hand, and for other hosts:

Each agent gets a name of its own. `postroom mcp --as coder --config` prints the JSON for Claude Code, which most hosts
understand, with the whole path of the program; a `--room` or `--socket` that you add is written as a whole path too. Put that
path in place of `postroom` below where a host does not find it.

Claude Code, by `claude mcp add postroom -- postroom mcp --as coder`, or in a project's `.mcp.json`:

```json
{"mcpServers": {"postroom": {"command": "postroom", "args": ["mcp", "--as", "coder"]}}}
```

What stands in `.mcp.json` is "Pending approval" until you start `claude` in that folder and approve it.

Codex, in `~/.codex/config.toml`:

```toml
[mcp_servers.postroom]
command = "postroom"
args = ["mcp", "--as", "coder"]
tool_timeout_sec = 60
```

Gemini CLI, in `~/.gemini/settings.json` or a project's `.gemini/settings.json`:

```json
{"mcpServers": {"postroom": {"command": "postroom", "args": ["mcp", "--as", "coder"], "timeout": 60000}}}
```

Tried without a model: `claude mcp list` (Claude Code 2.1.325) and `gemini mcp list` (0.61, in a trusted folder) start it and
say that they are connected, the first once what stands in `.mcp.json` is approved; `codex mcp add postroom -- postroom mcp --as
coder` (0.166) writes these lines but the last, which you add by hand, and `codex mcp list` reads them.

It opens the room itself, as every command does: no daemon is needed. `--socket PATH` (or `POSTROOM_SOCKET`, or
`INBOX_SOCKET_PATH`) asks a running daemon instead; where agents have tokens, set `POSTROOM_AUTH_TOKEN`. Over HTTP a host needs
the URL and a token (`postroom tokens create --agent coder`), as the header `Authorization: Bearer …`.

Without a socket it acts for the owner of the room, as the command line does: tokens do not hold there, `--as` is only who is
meant where a call names nobody, and a call may name any agent, also one that has a token. Who wants that refused gives the host
the socket or HTTP, with a token.

| variable | |
|---|---|
| `POSTROOM_AGENT`, else `INBOX_AGENT_ID` | who you are, where neither `--as` nor the call says it; else the agent of the session whose host started it, where that has [Postroom's hooks](hosts.md) |
| `POSTROOM_SCOPE`, else `INBOX_SCOPE` | the team of letters and agents that say nothing of one |

## What is promised

- Who writes is the token's agent, else `from`, else who the server was told of; else the call is refused, with a hint. With a
  token nobody reaches another's inbox, whatever the arguments say.
- `check_inbox` marks exactly what it returns as read. Reading is not acknowledging: until it is settled with `ack`, a message
  can be claimed. An agent nobody knows is registered when it looks at its inbox.
- To ask another agent, or the person (`human`), is one call: `send_message` with `timeout` waits for the answer, returns it as
  `answer` and settles it. Where it is null, nobody has answered yet: `wait_for_mail` with the `thread` that was returned gets
  the answer later; so does the same call with the same `key`, which sends nothing again. A question that nobody takes is the
  error `Undeliverable`, with the reason.
- No tool waits longer than 50 seconds, below the limits of hosts. With the cursor of the last `wait_for_mail` nothing is
  missed.
- What goes wrong is a tool error: JSON with `error`, `field`, `hint`, `name`, `code`, `retryable` (does the same again later
  help?), `keys` (with which to send again) and `retry_after` (seconds to wait, where that is known).
- What other agents wrote stays in fields of its own, and in prompts inside a fence with a random mark.
- On standard output there is nothing but JSON-RPC. What anything else prints goes to standard error.
- All schemas of the tools together stay below 3,000 tokens, counted as one for every 3.2 characters.
"""
TAIL = """## How long it takes to start

Nearly all of it is the SDK: it builds its types for both revisions when it is loaded. CPU time, Python 3.11, on a small
shared virtual machine (`mcp` 2.3.0):

| | seconds |
|---|---|
| a command that looks into a room (`postroom counts`) | 0.14 |
| loading the SDK's server and its stdio transport | 1.15 |
| … with the garbage collector kept from running meanwhile, as `postroom` does | 0.97 |
| … of which the types of the protocol | 0.62 |
| `postroom mcp`, from its start to the answer to `initialize` and its end | 0.94 |

The SDK's package loads its client side and its other server, too. Leaving them out by force would save about a fifth, and
break with the next release: it is not done. What is wrong with the arguments or the room is told before the SDK is loaded.
"""


def page() -> str:
    tools = ["## Tools", ""] + [line for name, tool in TOOLS.items() for line in _tool(name, tool)]
    introduction = (
        "JSON, read without marking anything. Changes are told by `resources/subscribe` in 2025-11-25 and by"
        "\n`subscriptions/listen` in 2026-07-28. A notification is a hint to read again; a burst of mail may be told once."
    )
    resources = ["## Resources", "", introduction, "", "| URI | |", "|---|---|"]
    resources += [f"| `{row.uri}` | {row.about} |" for row in TEMPLATES]
    prompts = ["", "## Prompts", "", "Hosts show them as commands. Names of agents are completed.", ""]
    for name, prompt in PROMPTS.items():
        prompts += [f"### {name}", "", about(prompt), "", *_args(arguments(prompt)), ""]
    return "\n".join([HEAD, *tools, *resources, *prompts, TAIL])


def _tool(name: str, tool: type[Tool]) -> list[str]:
    marks = [
        ("only reads", tool.reads_only),
        ("may end something", tool.destroys),
        ("harmless to repeat", tool.repeatable),
    ]
    text = ", ".join(mark for mark, is_so in marks if is_so)
    answer = ", ".join(f"`{name}`" for name in tool.answer)
    lines = [
        f"### {name}",
        "",
        about(tool),
        "",
        *_args(arguments(tool)),
        "",
        f"Answers with {answer}.",
    ]
    return [*lines, *([f"Marked as: {text}."] if text else []), ""]


def _args(args: tuple[Arg, ...]) -> list[str]:
    rows = [f"| `{arg.name}`{', needed' if arg.required else ''} | {_about(arg)} |" for arg in args]
    return ["| argument | |", "|---|---|", *rows]


def _about(arg: Arg) -> str:
    choices = ", ".join(arg.choices)
    return ". ".join(piece for piece in (arg.about, f"one of {choices}" if choices else "") if piece)


def main() -> None:
    true = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == true:
        print("the page about MCP is as the tables say")
    elif "--check" in sys.argv:
        raise SystemExit("docs/mcp.md is not what the tables say: make docs")
    else:
        PAGE.write_text(true, encoding="utf-8")
        print("written anew: mcp.md")


if __name__ == "__main__":
    main()

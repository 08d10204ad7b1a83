"""The page docs/mcp-tools.md, from the tables of the MCP server."""

from __future__ import annotations

from postroom.mcp.prompts import PROMPTS
from postroom.mcp.resources import TEMPLATES
from postroom.mcp.tools import TOOLS, Arg, Tool, about, arguments

HEAD = """# MCP reference

<!-- Written by `make pages` from the tables in src/postroom/mcp. -->

The tools, resources and prompts of `postroom mcp` and of `/mcp`. [MCP](mcp.md) says how to connect a host.
"""


def page() -> str:
    tools = ["## Tools", ""] + [line for name, tool in TOOLS.items() for line in _tool(name, tool)]
    introduction = (
        "JSON. Reading marks nothing as read. Changes are notified by `resources/subscribe` in 2025-11-25 and by"
        "\n`subscriptions/listen` in 2026-07-28. A notification is a hint to read again; a burst of mail may cause only one."
    )
    resources = ["## Resources", "", introduction, "", "| URI | |", "|---|---|"]
    resources += [f"| `{row.uri}` | {row.about} |" for row in TEMPLATES]
    prompts = ["", "## Prompts", "", "Hosts show them as commands. Names of agents are completed.", ""]
    for name, prompt in PROMPTS.items():
        prompts += [f"### {name}", "", about(prompt), "", *_args(arguments(prompt)), ""]
    return "\n".join([HEAD, *tools, *resources, *prompts])


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
        f"Returns {answer}.",
    ]
    return [*lines, *([f"Annotations: {text}."] if text else []), ""]


def _args(args: tuple[Arg, ...]) -> list[str]:
    rows = [f"| `{arg.name}`{', required' if arg.required else ''} | {_about(arg)} |" for arg in args]
    return ["| argument | |", "|---|---|", *rows]


def _about(arg: Arg) -> str:
    choices = ", ".join(arg.choices)
    return ". ".join(piece for piece in (arg.about, f"one of {choices}" if choices else "") if piece)

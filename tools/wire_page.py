"""Writes docs/service.md from the tables of the wire. With --check it only says whether the page is true."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from postroom import errors
from postroom.service.authorize import NEEDS, RULES
from postroom.wire.events import TYPES
from postroom.wire.map_table import MAP
from postroom.wire.methods import ACTIONS, ALIASES, MAIL, SESSION, VERBS
from postroom.wire.problems import BAD_TOKEN, CODES, INTERNAL_ERROR
from postroom.wire.table import Method

PAGE = Path(__file__).parent.parent / "docs" / "service.md"
HEAD = Path(__file__).parent / "service_head.md"
_TOKENS = f"A token that is worth nothing is `NotAllowed` with the JSON-RPC code {BAD_TOKEN}, on every wire.\n"
_WHO = {"own": "the mailbox's own agent", "anyone": "anyone who got in", "operator": "an operator"}


def page() -> str:
    pieces = [
        "<!-- Written by `make docs` from tools/service_head.md and the tables in src/postroom/wire. -->\n",
        HEAD.read_text(encoding="utf-8"),
        "## Actions on the socket\n\nThose of agent-inbox, with its replies. Unknown fields are ignored.\n",
        *(described(method, f"`{method.name}`") for method in ACTIONS.values()),
        "## About the connection\n\nOn the socket and on a WebSocket.\n",
        *(described(method, f"`{method.name}`") for method in SESSION.values()),
        "## Our own verbs\n\nOn the socket as an action of that name, in JSON-RPC with `mail/` before it.\n",
        *(described(method, f"`{method.name}`") for method in VERBS.values()),
        "## Conversations: `mail/*`\n\nIn JSON-RPC, in both dialects: agent-inbox's and MAP's.\n",
        *(described(method, f"`{method.name}`") for method in MAIL.values()),
        "## MAP\n\nAt `/map`, one JSON object in each text frame, and `mail/*` beside it. Names are written so"
        " or with a dot, such as `map/agents.list`; parameters also as `agentId`. See [MAP](map.md).\n",
        *(described(method, f"`{method.name}`") for method in MAP.values()),
        "## Events\n\n" + ", ".join(f"`{name}`" for name in TYPES) + ", `resync`, and what `emit` was told.\n",
        "## Errors\n\n" + "\n".join(error_rows()) + "\n\n" + _TOKENS,
    ]
    return "\n".join(pieces)


def described(method: Method, title: str) -> str:
    lines = [f"### {title}", "", f"{sentence(method.about)} {who(method)}"]
    other = [alias for alias, name in ALIASES.items() if name == method.name]
    if other:
        lines[-1] += f" Also `{'`, `'.join(other)}`."
    if method.params:
        lines += ["", "| parameter | kind | |", "|---|---|---|"]
        lines += [
            f"| `{p.name}` | {p.kind}{', required' if p.required else ''} | {p.about} |" for p in method.params
        ]
    return "\n".join([*lines, "", f"Answers: {method.result}.", ""])


def sentence(text: str) -> str:
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?")) else f"{text}."


def who(method: Method) -> str:
    rule = RULES[method.action]
    scopes = (
        f", with a token good for {' or '.join(sorted(NEEDS[method.action]))}" if method.action in NEEDS else ""
    )
    return f"For {_WHO[rule]}{scopes}."


def error_rows() -> Iterator[str]:
    yield "| error | its number | JSON-RPC code | trying again helps | |"
    yield "|---|---|---|---|---|"
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.PostroomError) and kind is not errors.PostroomError:
            code = next((code for base, code in CODES if issubclass(kind, base)), INTERNAL_ERROR)
            again = "yes" if kind.temporary else "no"
            yield f"| `{name}` | {kind.code} | {code} | {again} | {(kind.__doc__ or '').strip()} |"


def main() -> None:
    told = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == told:
        print("the page of the service is as the tables say")
    elif "--check" in sys.argv:
        raise SystemExit("docs/service.md is not as the tables say; make docs")
    else:
        PAGE.write_text(told, encoding="utf-8")
        print("written anew: service.md")


if __name__ == "__main__":
    main()

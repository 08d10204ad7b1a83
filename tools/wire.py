"""The reference pages of the wire, from its tables: docs/service.md and docs/federation-wire.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from postroom import errors
from postroom.core.authorize import NEEDS, RULES
from postroom.core.verb import Declaration, Verb, parameters
from postroom.federation.peer_calls import FEDERATION
from postroom.formats.errors import BAD_TOKEN, CODES, INTERNAL_ERROR, NoSuchMethod
from postroom.formats.errors import NUMBERS as MAIL_NUMBERS
from postroom.formats.events import MAP_TYPES, TYPES
from postroom.formats.federation import NUMBERS, PeerRefusal
from postroom.formats.plain import result_names
from postroom.map.session import MAP
from postroom.server.describe import kind_of
from postroom.server.inbox_actions import ACTIONS
from postroom.server.mail import MAIL
from postroom.server.protocol import ALIASES, wire_verbs
from postroom.server.requests import SESSION

HEAD = Path(__file__).parent / "service_head.md"
BETWEEN = Path(__file__).parent / "federation_wire_head.md"
_TOKENS = f"A token that is not valid is `NotAllowed` with the JSON-RPC code {BAD_TOKEN}, on every wire.\n"
_MAIL_ERRORS = (
    "In `mail/*`, errors about conversations have MAP's numbers, with the category `mail` in their data and"
    " the error's name and number in `data.details`, on every wire.\n\n"
)
_WHO = {"own": "the mailbox's own agent", "anyone": "any caller", "operator": "an operator"}


def service_page() -> str:
    pieces = [
        "<!-- Written by `make pages` from tools/service_head.md and the tables in src/postroom. -->\n",
        HEAD.read_text(encoding="utf-8"),
        "## Actions on the socket\n\nThe actions of agent-inbox, with its replies. Unknown fields are ignored.\n",
        *map(described, ACTIONS.values()),
        "## About the connection\n\nOn the socket and on a WebSocket.\n",
        *map(described, SESSION.values()),
        "## Our own verbs\n\nOn the socket as an action of that name, in JSON-RPC with `mail/` before it.\n",
        *map(described, sorted(wire_verbs().values(), key=lambda cls: cls.__module__)),
        "## Conversations: `mail/*`\n\nJSON-RPC methods in the dialects of agent-inbox and MAP.\n",
        *map(described, MAIL.values()),
        "## MAP\n\nAt `/map`, one JSON object in each text frame; `mail/*` works there too. Names may also be"
        " written with a dot, such as `map/agents.list`, and parameters as `agentId`. See [MAP](map.md).\n",
        *(described(cls) for name, cls in MAP.items() if name not in FEDERATION),
        "The methods between systems, `map/federation/*`, have [a page of their own](federation-wire.md).\n",
        "## Events\n\n" + ", ".join(map(event_name, TYPES)) + ", `resync`, and the types of `emit`.\n",
        "## Errors\n\n" + "\n".join(error_rows()) + "\n\n" + _TOKENS,
        _MAIL_ERRORS + "\n".join(mail_error_rows()) + "\n",
    ]
    return "\n".join(pieces)


def federation_page() -> str:
    pieces = [
        "<!-- Written by `make pages` from tools/federation_wire_head.md and tables in src/postroom. -->\n",
        BETWEEN.read_text(encoding="utf-8"),
        "## Methods\n",
        *(described(cls, "Callers: a peer that has proven who it is.") for cls in FEDERATION.values()),
        "## Refusals\n\n" + "\n".join(refusal_rows()) + "\n",
    ]
    return "\n".join(pieces)


def refusal_rows() -> Iterator[str]:
    yield "| error | field | number | the letter |"
    yield "|---|---|---|---|"
    for kind, field, number in NUMBERS:
        becomes = (
            "waits, and is sent again"
            if PeerRefusal(number, "", kind.temporary).waits
            else "is dead, with a bounce"
        )
        yield f"| `{kind.__name__}` | {field or 'any'} | {number} | {becomes} |"


def described(cls: type[Verb], whose: str = "") -> str:
    declaration, params = cls.declaration(), parameters(cls).values()
    lines = [f"### `{declaration.name}`", "", f"{sentence(declaration.about)} {whose or who(declaration)}"]
    other = [alias for alias, name in ALIASES.items() if name == declaration.name]
    if other:
        lines[-1] += f" Also `{'`, `'.join(other)}`."
    if params:
        lines += ["", "| parameter | kind | |", "|---|---|---|"]
        lines += [f"| `{p.name}` | {kind_of(p)}{', required' if p.required else ''} | {p.help} |" for p in params]
    result = declaration.result
    fields = result if isinstance(result, str) else ", ".join(result_names(declaration))
    return "\n".join([*lines, "", f"Result: {fields}.", ""])


def sentence(text: str) -> str:
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?")) else f"{text}."


def who(method: Declaration) -> str:
    rule = RULES[method.action]
    scopes = (
        f" (with a token: good for {' or '.join(sorted(NEEDS[method.action]))})" if method.action in NEEDS else ""
    )
    return f"Callers: {_WHO[rule]}{scopes}."


def event_name(name: str) -> str:
    return f"`{name}` (`{MAP_TYPES[name]}` in MAP)" if name in MAP_TYPES else f"`{name}`"


def error_rows() -> Iterator[str]:
    yield "| error | its number | JSON-RPC code | trying again helps | |"
    yield "|---|---|---|---|---|"
    for name, kind in {**vars(errors), NoSuchMethod.__name__: NoSuchMethod}.items():
        if isinstance(kind, type) and issubclass(kind, errors.PostroomError) and kind is not errors.PostroomError:
            code = next((code for base, code in CODES if issubclass(kind, base)), INTERNAL_ERROR)
            again = "yes" if kind.temporary else "no"
            yield f"| `{name}` | {kind.code} | {code} | {again} | {(kind.__doc__ or '').strip()} |"


def mail_error_rows() -> Iterator[str]:
    yield "| error | of | JSON-RPC code and `data.code` |"
    yield "|---|---|---|"
    for kind, field, number in MAIL_NUMBERS:
        yield f"| `{kind.__name__}` | {f'`{field}`' if field else 'anything else'} | {number} |"

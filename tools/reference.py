"""The page docs/reference.md, from docstrings, settings, errors and transition tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

import postroom
from postroom import aio, errors, keywords
from postroom.core.compose import LetterFields
from postroom.core.inbox import Filtered
from postroom.environment import PREFIX
from postroom.model import delivery, task
from postroom.model.delivery import State
from postroom.model.task import TaskState
from postroom.settings import Settings

HEAD = """# Python reference

<!-- Written by `make pages` from the docstrings, settings and errors in src/postroom. -->

Every public name of the library. A name that is not on this page may change without notice. The commands have
[a page of their own](commands.md), and so have [the methods of the service](service.md). `postroom.__version__` is the
version, and `postroom.aio` [the same for asyncio](#asyncio).

Classes: [`Room`](#room), [`Mailbox`](#mailbox), [`Letter`](#letter), [`Work`](#work), [`Batch`](#batch), [`Task`](#task).
"""
CLASSES: dict[str, type] = {
    name: getattr(postroom, name) for name in ("Room", "Mailbox", "Letter", "Work", "Batch", "Task")
}
FUNCTIONS = ("open", "draft", "doctor", "restore", "copy_room")
PARTS = ("text", "data", "event", "file", "reference")
DEPRECATED = {
    "begin_rings", "try_ring", "wait_to_ring", "ring_done", "ring_failed", "dead_rings", "retry_rings", "Standing",
}  # fmt: skip
_COMMENT = re.compile(r"^ {4}(?:self\.)?(\w+)\b[^#\n]*  # (.+)$", re.MULTILINE)


def page() -> str:
    return "\n".join(
        [
            HEAD,
            "## Functions\n",
            *(line for name in FUNCTIONS for line in _call("postroom", name, getattr(postroom, name))),
            "## Parts\n\nThe body of a letter is a text, one part, or a list of texts and parts.\n",
            *(line for name in PARTS for line in _call("postroom", name, getattr(postroom, name))),
            *(line for name, cls in CLASSES.items() for line in _class(name, cls)),
            *_letter_fields(),
            *_asyncio(),
            *_values(),
            *_settings(),
            *_errors(),
            *_states(),
        ]
    )


# -- functions and classes


def _call(owner: str, name: str, function: Any) -> Iterator[str]:
    call, returned, about = described(function, f"postroom.{name}" if owner == "postroom" else name)
    yield f"### {owner}.{name}\n"
    yield f"`{call}`{f' → {returned}' if returned else ''}\n"
    yield f"{about}\n"
    if listed := arguments_of(function):
        yield from (f"- `{one}`: {what}" for one, what in listed.items())
        yield ""


def described(function: Any, name: str) -> tuple[str, str, str]:
    """Return a call as a reader writes it, without types and `self`; what it returns; and its docstring."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    returned = "" if signature.return_annotation in {"None", None} else f"`{signature.return_annotation}`"
    return f"{name}{inspect.Signature(bare)}", returned, text_of(function)


def text_of(thing: Any) -> str:
    """Return a docstring as one line, without its list of arguments."""
    return " ".join((inspect.getdoc(thing) or "").partition("\nArgs:\n")[0].split())


def arguments_of(thing: Any) -> dict[str, str]:
    """Return the arguments that a docstring lists, each with what it means."""
    listed = inspect.cleandoc((inspect.getdoc(thing) or "").partition("\nArgs:\n")[2])
    pieces = re.findall(r"^(\*{0,2}\w+): (.*(?:\n +.*)*)", listed, re.MULTILINE)
    return {name: " ".join(what.split()) for name, what in pieces}


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, those of `list` apart, in the order of the source."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("postroom"):
            for name, value in vars(base).items():
                if not name.startswith("_") and name not in seen:
                    seen.add(name)
                    yield name, value


def _class(name: str, cls: type) -> Iterator[str]:
    inherited = set(dir(postroom.Letter)) if name == "Work" else set()
    methods, properties, deprecated = [], [], []
    for member, value in members(cls):
        if member in inherited:
            continue
        if member in DEPRECATED:
            deprecated.append(f"`{member}`")
        elif isinstance(value, property):
            properties.append((f"`{member}`", f"`{_returned(value)}`", text_of(value)))
        elif callable(value):
            methods.append((member, value))
    yield f"## {name}\n"
    yield f"{text_of(cls)}\n"
    if inherited:
        yield "It has all methods and attributes of a [Letter](#letter), and:\n"
    shown = [(f"`{one}`", "", about) for one, about in attributes(cls).items() if one not in inherited]
    yield from _table("attribute", "type", rows=[*shown, *properties])
    yield ""
    for member, value in methods:
        yield from _call(name, member, value)
    if deprecated:
        yield f"Deprecated names that still work: {', '.join(deprecated)}.\n"


def attributes(cls: type) -> dict[str, str]:
    """Return the public attributes that `__init__` sets, with their comments in the source."""
    if "__init__" not in vars(cls):
        return {}
    source = inspect.getsource(vars(cls)["__init__"])
    return dict(re.findall(r"^ +self\.([a-z]\w*)\b[^=\n]* = [^#\n]*(?:  # (.+))?$", source, re.MULTILINE))


def _returned(value: property) -> str:
    return str(inspect.signature(value.fget).return_annotation) if value.fget else ""


def _table(*titles: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table whose last column has no title; columns that are empty everywhere are left out."""
    found = [*rows]
    if found:
        kept = [at for at in range(len(found[0])) if any(row[at] for row in found)]
        heads = (*titles, "")
        yield f"| {' | '.join(heads[at] for at in kept)} |"
        yield f"|{'---|' * len(kept)}"
        yield from ("| " + " | ".join(row[at].replace("|", r"\|") for at in kept) + " |" for row in found)


# -- letters


def _letter_fields() -> Iterator[str]:
    yield "## Fields of a letter\n"
    yield "The keywords `**fields` of every method that sends. All are optional.\n"
    about = helps(LetterFields) | {
        "extra": "fields of other systems",
        "task": "what it says of a task, as an object",
    }
    about["id"] = about["letter_id"]
    rows = [(f"`{name}`", about[name]) for name in keywords.Fields.__annotations__]
    yield from _table("field", rows=rows)
    yield "\n## Filters\n"
    yield "The keywords `**filters` of `check`, `claim`, `work` and `serve`, and `**wanted` of `wait`.\n"
    filters = helps(Filtered)
    filters["since"] = "only letters written at or after this time; in `wait` it is a cursor"
    yield from _table("filter", rows=[(f"`{name}`", filters[name]) for name in keywords.Filters.__annotations__])
    yield ""


def helps(cls: type) -> dict[str, str]:
    """Return the line of help that each field of a verb is declared with."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def _asyncio() -> Iterator[str]:
    yield "## asyncio\n"
    yield f"`postroom.aio.open(store=None, **settings)`: {text_of(aio.open)}\n"
    names = ", ".join(f"`{name}`" for name in aio.__all__ if name.startswith("Async"))
    yield f"{names} have the methods of the classes above, awaited. {text_of(aio.AsyncRoom)}\n"
    call, _, about = described(aio.AsyncRoom.run, "run")
    yield f"`AsyncRoom.room` and `AsyncMailbox.mailbox` are the sync objects. `{call}`: {about}\n"


# -- values


def values() -> dict[str, Any]:
    """Return the public types that methods return, by name."""
    found = {name: getattr(postroom, name) for name in postroom.__all__ if name not in {*CLASSES, *DEPRECATED}}
    return {
        name: value for name, value in found.items() if inspect.isclass(value) and not issubclass(value, Exception)
    }


def _values() -> Iterator[str]:
    yield "## Values\n"
    yield "The types that methods take and return. All but `Draft` are frozen.\n"
    yield from _table("type", rows=((f"`{name}`", _value(value)) for name, value in values().items()))
    yield "\n`Standing` is a deprecated name of `TaskStatus`.\n"


def _value(cls: Any) -> str:
    about = comments(cls)
    if issubclass(cls, Enum):
        names = list(cls.__members__)
    else:
        names = list(getattr(cls, "__struct_fields__", ()))
        names += [name for name, value in members(cls) if isinstance(value, property) and name not in names]
    fields = ", ".join(f"`{name}`" + (f" ({about[name]})" if name in about else "") for name in names)
    return f"{text_of(cls)} {f'Fields: {fields}.' if fields else ''}".strip()


def comments(cls: type) -> dict[str, str]:
    """Return what the source says behind the fields of a class, by field."""
    return dict(_COMMENT.findall(inspect.getsource(cls)))


# -- settings, errors, states


def _choices(name: str) -> str:
    """Return the words that a setting takes, if only some are allowed."""
    hint = get_type_hints(Settings)[name]
    return f": {' or '.join(map(shown, get_args(hint)))}" if get_origin(hint) is Literal else ""


def _settings() -> Iterator[str]:
    yield "## Settings\n"
    yield (
        "A setting comes from the arguments of `postroom.open`, else from the environment, else from\n"
        "`$XDG_CONFIG_HOME/postroom/config.toml` (by default `~/.config`), else it has its default. An unknown name in the\n"
        "file or among the arguments is refused, and so is a value out of range. Unknown variables `POSTROOM_*` are ignored,\n"
        "because other tools may set them. Times are in seconds.\n"
    )
    about = comments(Settings) | comments(Settings.__mro__[1])
    rows = [
        (f"`{name}`", shown(default), f"`{PREFIX}{name.upper()}`", about[name] + _choices(name))
        for name, default in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)
    ]
    yield from _table("setting", "default", "variable", rows=rows)
    yield ""


def shown(default: Any) -> str:
    """Return a default as the table writes it."""
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return f"`{msgspec.json.encode(default).decode()}`"


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield (
        "Every error is a `PostroomError`. `fault` says where the cause lies: with the caller, with Postroom and its machine\n"
        "(`house`), or in a race with another process. `temporary` says whether the same call can succeed later.\n\n"
        "An error has `message`, and where they are known `field` (the argument that is wrong), `hint` (what to do),\n"
        "`keys` (the keys with which to send the same letters again; `key` for a single letter) and `retry_after` (seconds).\n"
    )
    classes = [e for e in vars(errors).values() if inspect.isclass(e) and issubclass(e, errors.PostroomError)]
    rows = [(f"`{e.__name__}`", str(e.code), e.fault, "yes" if e.temporary else "no", text_of(e)) for e in classes]
    yield from _table("error", "code", "fault", "temporary", rows=rows)
    yield ""


def _states() -> Iterator[str]:
    yield "## Delivery states\n"
    about = comments(State)
    yield from _table("state", rows=((f"`{state}`", about[state.name]) for state in State))
    yield "\nThese are all the moves there are; any other is refused with `IllegalMove`.\n"
    moves = [(f"`{begin}`", f"`{action}`", f"`{end}`") for (begin, action), end in delivery.MOVES.items()]
    sent = [
        ("", "`send`", f"`{State.UNREAD}`"),
        ("", "`send` with `at=`, or to another system", f"`{State.QUEUED}`"),
    ]
    yield from _table("from", "action", "to", rows=[*sent, *moves])
    yield "\n## Task states\n"
    yield "A task begins as `pending`.\n"
    rows = [
        (f"`{state}`", ", ".join(f"`{after}`" for after in task.MOVES[state]) or "none: it is final")
        for state in TaskState
    ]
    yield from _table("state", "next", rows=rows)
    yield ""

"""Public Python: every public name with its kind, its methods and signatures, its fields and values."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import datetime as dt
import enum
import importlib
import importlib.util
import inspect
import os
import re
import runpy
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import postroom
from postroom import nanobot
from tests.pinned.pins import check_pin

ROOT = Path(__file__).parent.parent.parent
MODULES = ("postroom", "postroom.aio", "postroom.chipset", "postroom.nanobot", "postroom.swarm")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OF_NANOBOT = ROOT / "packages" / "postroom-nanobot"
PLUGIN = tomllib.loads((OF_NANOBOT / "pyproject.toml").read_text(encoding="utf-8"))

# Names that an annotation may hold; any other is internal, may be renamed, and is shown as `*`.
KNOWN = {
    *(name for module in MODULES for name in importlib.import_module(module).__all__),
    *vars(builtins),
    *typing.__all__,
    *collections.abc.__all__,
    *vars(dt),
    "PathLike",
    "Path",
}


@pytest.mark.parametrize("name", MODULES)
def test_the_public_names_are_as_they_were(name: str) -> None:
    module = importlib.import_module(name)
    check_pin(f"python-{name}", {public: described(getattr(module, public)) for public in module.__all__})


def test_the_attributes_of_objects_are_as_they_were() -> None:
    """Attributes that are set at birth are not seen on the class."""
    with postroom.open("memory:") as room:
        box = room.mailbox("a")
        box.send("a", "x")
        letter = box.check()[0]
        batch = box.claim(1)
        task = box.task(box.give_task("a", "x").id)
        found = [room, box, letter, batch, batch[0], task]
        names = {type(one).__name__: [name for name in dir(one) if name[0] != "_"] for one in found}
        names["Batch"] = [name for name in names["Batch"] if not hasattr(list, name)]
        check_pin("python-objects", names)


def test_the_settings_and_their_defaults_are_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("POSTROOM_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with postroom.open("memory:") as room:
        check_pin("python-settings", msgspec.to_builtins(room.settings))


def test_every_documented_import_works() -> None:
    """The list is pinned, so that a page which is rewritten does not free anybody from keeping its imports."""
    found = sorted({f"{module}:{name}" for module, name in documented_imports()})
    for line in found:
        module, _, name = line.partition(":")
        assert not name or getattr(importlib.import_module(module), name) is not None, line
    check_pin("python-imports", found)


def test_the_entry_points_are_as_they_were() -> None:
    """Their modules may move, since they are read at installation; names and classes may not."""
    project, plugin = PROJECT["project"], PLUGIN["project"]
    groups = {"console_scripts": project["scripts"], **plugin["entry-points"]}
    for names in groups.values():
        for target in names.values():
            module, _, attribute = target.partition(":")
            assert attribute in top_level_names(module), target
    pinned = {
        group: {name: target.partition(":")[2] for name, target in names.items()}
        for group, names in groups.items()
    }
    check_pin("python-entry-points", pinned | {"extras": sorted(project["optional-dependencies"])})


def test_the_folder_that_nanobot_reads_is_as_it_was() -> None:
    assert ["nanobot/channels/mailbox"] == PLUGIN["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    folder = OF_NANOBOT / "nanobot" / "channels" / "mailbox"
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    assert ["__init__.py", "manifest.py", "runtime.py"] == list(texts)
    shim = runpy.run_path(str(folder / "__init__.py"))
    assert nanobot.MailboxManager is shim["__getattr__"]("MailboxManager")
    assert all(
        f'"{name}"' in texts["__init__.py"] for name in ("MailboxManager", "MailboxChannel", "MailboxConfig")
    )
    assert 'name="mailbox"' in texts["manifest.py"] and "MailboxChannel" in texts["runtime.py"]


def described(thing: Any) -> Any:
    """Describe a public thing without the module it lives in."""
    match thing:
        case ModuleType():
            return {"kind": "module", "name": thing.__name__}
        case enum.EnumType():
            return {"kind": "enum", "values": {one.name: one.value for one in thing}}  # type: ignore[var-annotated]
        case type():
            return described_class(thing)
        case _ if callable(thing):
            return {"kind": "function", "call": signature(thing)}
        case _:
            return {"kind": type(thing).__name__, "value": str(thing)}


def described_class(thing: type) -> dict[str, Any]:
    public_bases = [base.__name__ for base in thing.__mro__[1:] if base.__name__ in KNOWN - {"object", "Generic"}]
    found: dict[str, Any] = {"kind": "class", "bases": public_bases, "call": signature(thing)}
    if issubclass(thing, postroom.PostroomError):
        found["error"] = {"code": thing.code, "fault": thing.fault, "temporary": thing.temporary}
    if issubclass(thing, msgspec.Struct):
        found["fields"] = list(thing.__struct_fields__)
        found["frozen"] = thing.__struct_config__.frozen
    found["members"] = {
        name: member(inspect.getattr_static(thing, name))
        for name in dir(thing)
        if is_public(name) and not is_inherited(thing, name) and name not in found.get("fields", ())
    }
    return found


def is_inherited(thing: type, name: str) -> bool:
    """Is this what Python's own classes have? That differs between its versions."""
    return any(name in vars(base) for base in (list, BaseException)) and not any(
        name in vars(base) for base in thing.__mro__ if base.__module__.startswith("postroom")
    )


def is_public(name: str) -> bool:
    protocols = "__enter__ __exit__ __aenter__ __aexit__ __iter__ __aiter__ __len__ __getitem__ __call__".split()
    return name[0] != "_" or name in protocols


def member(thing: Any) -> str:
    match thing:
        case property():
            return f"property -> {text_of(inspect.signature(thing.fget).return_annotation)}"  # type: ignore[arg-type]
        case classmethod() | staticmethod():
            return f"{type(thing).__name__} {signature(thing.__func__)}"
        case _ if inspect.iscoroutinefunction(thing):
            return f"async {signature(thing)}"
        case _ if callable(thing):
            return signature(thing)
        case _ if inspect.isdatadescriptor(thing):
            return "attribute"
        case _:
            return f"{type(thing).__name__} {thing!r}" if isinstance(thing, str | int | bool | None) else "value"


def signature(thing: Any) -> str:
    """Show parameters with their kinds, defaults and types, and what is returned."""
    try:
        found = inspect.signature(thing)
    except ValueError:
        return "?"
    parameters = [shown(one) for one in found.parameters.values() if one.name not in {"self", "cls"}]
    returned = "" if found.return_annotation is found.empty else f" -> {text_of(found.return_annotation)}"
    return f"{inspect.Signature(parameters)}{returned}"


def shown(one: inspect.Parameter) -> inspect.Parameter:
    return one.replace(annotation=_Text(text_of(one.annotation)), default=_default(one))


class _Text:
    """Shown as it is, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(one: inspect.Parameter) -> Any:
    if one.default is inspect.Parameter.empty:
        return one.default
    if isinstance(one.default, enum.Enum):
        return _Text(f"{type(one.default).__name__}.{one.default.name}")
    if isinstance(one.default, str | int | float | tuple | None):
        return one.default
    return _Text(f"<{type(one.default).__name__}>" if type(one.default).__name__ in KNOWN else "<*>")


def text_of(annotation: Any) -> str:
    """Show a type without the modules its names live in, and without internal names."""
    if annotation is inspect.Parameter.empty:
        return "?"
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text)
    pieces = re.split(r"""(Literal\[[^]]*\])""", text)  # the words in it are values, not names
    return "".join(piece if piece.startswith("Literal[") else _without_internal(piece) for piece in pieces)


def _without_internal(text: str) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda found: found[0] if found[0] in KNOWN else "*", text)


def documented_imports() -> Iterator[tuple[str, str]]:
    """Every import of postroom that a page for users shows, as (module, name)."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"\bfrom (postroom[\w.]*) import ([\w, ]+)", text):
            yield from ((module, name.strip()) for name in names.split(","))
        for module in re.findall(r"^\s*import (postroom[\w.]*)", text, re.MULTILINE):
            yield module, ""
        for module, name in re.findall(r"`(postroom(?:\.(?:aio|chipset|nanobot|swarm))?)\.([A-Za-z_]\w*)", text):
            if name in getattr(importlib.import_module(module), "__all__", ()):
                yield module, name


def top_level_names(module: str) -> set[str]:
    """The names a module defines or imports, read without importing it: it may need nanobot."""
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, module
    names: set[str] = set()
    for node in ast.parse(Path(found.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
            case ast.ImportFrom(names=aliases):
                names.update(alias.asname or alias.name for alias in aliases)
    return names

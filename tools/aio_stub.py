"""The types of the async face, src/postroom/aio.pyi, from the sync classes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "postroom"
STUB = PACKAGE / "aio.pyi"
FACES = {
    "Room": "room",
    "Mailbox": "mailbox",
    "Letter": "letter",
    "Work": "letter",
    "Batch": "letter",
    "Task": "task",
}
BASES = {"Room": "", "Work": "(AsyncLetter)", "Batch": "(list[AsyncWork])"}
WRAPPED = {"Letter", "Work", "Batch", "Task"}  # `Room` and `Mailbox` are made by hand


def stub() -> str:
    """Return the stub: what `aio.py` writes by hand as it stands there, and all else from the sync classes."""
    own = ast.parse((PACKAGE / "aio.py").read_text(encoding="utf-8"))
    by_hand = {node.name: node for node in own.body if isinstance(node, ast.ClassDef)}
    classes = [line for sync in FACES for line in face(sync, by_hand[f"Async{sync}"])]
    body = "\n".join(classes)
    pieces = [
        "# The types of the async face. `make pages` writes them from the sync classes.\n",
        *imports(body),
        "\n__all__: list[str]\nTHREADS: int\nP = ParamSpec('P')\nT = TypeVar('T')\n",
        "def open(store: str | os.PathLike[str] | None = None, **settings: Any) -> AsyncRoom: ...\n",
        body,
    ]
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    done = subprocess.run(command, input="\n".join(pieces), capture_output=True, text=True, check=True)
    return done.stdout


def face(sync: str, by_hand: ast.ClassDef) -> Iterator[str]:
    """Yield the lines of one class."""
    call = by_hand.decorator_list[0]
    keywords = call.keywords if isinstance(call, ast.Call) else []
    options: dict[str, tuple[str, ...]] = {one.arg or "": ast.literal_eval(one.value) for one in keywords}
    yield f"class Async{sync}{BASES.get(sync, '')}:"
    skipped = set(options.get("without", ()))
    if sync not in {"Room", "Mailbox"}:
        yield f"    _sync: {sync}"
        yield "    _room: AsyncRoom"
    if sync in {"Work", "Batch"}:
        yield from BLOCK
    yield from attributes(by_hand)
    for item in by_hand.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(item.name):
            skipped.add(item.name)
            yield from lines(item, is_async=isinstance(item, ast.AsyncFunctionDef) and item.name != "work")
    for item in class_body(sync):
        match item:
            case ast.AnnAssign(target=ast.Name(id=name)) if is_public(name):
                yield f"    @property\n    def {name}(self) -> {ast.unparse(item.annotation)}: ..."
            case ast.Assign(targets=[ast.Tuple() as names], value=ast.Tuple() as values):  # deprecated names
                for old, new in zip(map(ast.unparse, names.elts), values.elts, strict=True):
                    any_call = f"async def {old}(self, *args: Any, **more: Any) -> Any: ..."
                    yield f"    {any_call if isinstance(new, ast.Call) else f'{old} = {ast.unparse(new)}'}"
            case ast.FunctionDef(name=name) if name[0] != "_" and name not in skipped:
                is_plain = name in options.get("plain", ()) or is_property(item)
                yield from lines(renamed(item), is_async=not is_plain)


BLOCK = [
    "    async def __aenter__(self) -> Self: ...",
    "    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,"
    " trace: TracebackType | None) -> None: ...",
]


def attributes(by_hand: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes of the rooms and mailboxes, which are set when they are made."""
    known = {
        "AsyncRoom": "room: Room\n    _sync: Room\n    _watcher: SharedWatcher\n"
        "    async def _let_go(self) -> None: ...\n"
        "    async def _wait_until(self, mailboxes: Sequence[str], timeout: float, look: Callable[[], T],"
        " longest_sleep: Callable[[], float] = ...) -> T: ...",
        "AsyncMailbox": "room: AsyncRoom\n    mailbox: Mailbox\n    name: str\n    _sync: Mailbox",
    }
    if by_hand.name in known:
        yield f"    {known[by_hand.name]}"


def is_public(name: str) -> bool:
    return name[0] != "_" or name in {"__init__", "__aenter__", "__aexit__"}


def is_property(item: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "property" for one in item.decorator_list)


def lines(item: ast.FunctionDef | ast.AsyncFunctionDef, *, is_async: bool) -> Iterator[str]:
    for one in item.decorator_list:
        yield f"    @{ast.unparse(one)}"
    returns = "None" if item.returns is None else ast.unparse(item.returns)
    yield f"    {'async ' if is_async else ''}def {item.name}({ast.unparse(item.args)}) -> {returns}: ..."


def class_body(sync: str) -> list[ast.stmt]:
    """Return the body of a sync class; of an overloaded method only the overloads."""
    tree = ast.parse((PACKAGE / f"{FACES.get(sync, sync.lower())}.py").read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == sync]
    if "Reader" in map(ast.unparse, found.bases):
        found.body += class_body("Reader")
    overloaded = {
        item.name
        for item in found.body
        if isinstance(item, ast.FunctionDef) and any(ast.unparse(one) == "overload" for one in item.decorator_list)
    }
    return [
        item
        for item in found.body
        if not (isinstance(item, ast.FunctionDef) and item.name in overloaded and not item.decorator_list)
    ]


def renamed(item: ast.FunctionDef) -> ast.FunctionDef:
    """Return a method whose types are the async ones."""
    for node in ast.walk(item):
        if isinstance(node, ast.Name) and node.id in WRAPPED:
            node.id = f"Async{node.id}"
    return item


def imports(body: str) -> Iterator[str]:
    """Yield the imports of the names in the stub, from where the modules of the sync classes have them."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    used |= {"Any", "ParamSpec", "TypeVar", *FACES}
    yield "import os"
    homes: dict[str, set[str]] = {"typing": {"ParamSpec", "TypeVar"}, ".watcher": {"SharedWatcher"}}
    homes["collections.abc"] = {"AsyncGenerator", "Awaitable"} & used
    for sync, module in {**FACES, "": "reader"}.items():
        if sync:
            homes.setdefault(f".{module}", set()).add(sync)
        for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                home = "." * node.level + (node.module or "")
                names = {alias.name for alias in node.names} & used - FACES.keys()
                homes.setdefault(home, set()).update(names)
    for home, names in sorted(homes.items(), key=lambda one: (one[0][0] == ".", one[0])):
        if names:
            yield f"from {home} import {', '.join(sorted(names))}"

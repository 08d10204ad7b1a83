"""What a commit does to files, step by step. Each can be done again after a crash, and taken back after a failure.

What fails leaves nothing behind. Paths are whole. A step says which folders must be synced once it is done;
nothing here syncs a folder.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...model.codec import to_plain
from . import paper

if TYPE_CHECKING:
    from collections.abc import Callable

    from .paper import Stamp


class Create(Struct, tag=True, kw_only=True):
    """A letter comes."""

    folder: str
    name: str
    content: bytes

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder,)

    def do(self, *, durable: bool) -> Stamp:
        paper.make_folder(self.folder)
        return paper.write_new(self.folder, self.name, self.content, durable=durable)

    def undo(self) -> None:
        _unlink(f"{self.folder}/{self.name}")


class Rewrite(Struct, tag=True, kw_only=True):
    """A letter says something else about its state, maybe in another folder. There is always one copy."""

    folder: str
    name: str
    content: bytes
    former: str  # the folder where it lay
    was: bytes = b""  # what it said, to take it back

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder,) if self.folder == self.former else (self.folder, self.former)

    def do(self, *, durable: bool, spare: str = "") -> Stamp:
        paper.make_folder(self.folder)
        if spare:
            stamp = paper.replace_by(spare, self.folder, self.name, self.content, durable=durable)
        else:
            stamp = paper.replace(self.folder, self.name, self.content, durable=durable)
        if self.folder != self.former:
            try:
                _unlink(f"{self.former}/{self.name}")
            except OSError:  # all or nothing
                _unlink(f"{self.folder}/{self.name}")
                raise
        return stamp

    def undo(self) -> None:
        """It takes the place of the only copy, so it is synced whoever asked."""
        paper.replace(self.former, self.name, self.was, durable=True)
        if self.folder != self.former:
            _unlink(f"{self.folder}/{self.name}")


class Shift(Struct, tag=True, kw_only=True):
    """A letter goes to another folder, as it is."""

    folder: str
    name: str
    former: str

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder, self.former)

    def do(self, *, durable: bool) -> None:  # noqa: ARG002 - there is no content to sync
        source, target = f"{self.former}/{self.name}", f"{self.folder}/{self.name}"
        try:
            paper.check_folder(self.folder)
            paper.rename_new(source, target)
        except FileNotFoundError:
            paper.make_folder(self.folder)
            paper.rename_new(source, target)

    def undo(self) -> None:
        with suppress(FileNotFoundError):  # a stranger has taken it since
            paper.rename_new(f"{self.folder}/{self.name}", f"{self.former}/{self.name}")


class Remove(Struct, tag=True, kw_only=True):
    """A letter is deleted. It cannot be taken back, so it comes last."""

    folder: str
    name: str

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder,)

    def do(self, *, durable: bool) -> None:  # noqa: ARG002
        _unlink(f"{self.folder}/{self.name}")

    def undo(self) -> None:
        """The journal has it, and will do it."""


class Resettle(Struct, tag=True, kw_only=True):
    """A mailbox's folder gets another name. Empty folders that somebody made there make room for it."""

    former: str
    folder: str

    @property
    def folders(self) -> tuple[str, ...]:
        return (os.path.dirname(self.folder),)

    def do(self, *, durable: bool) -> None:  # noqa: ARG002
        if os.path.lexists(self.former):
            _make_room(self.folder)
            os.rename(self.former, self.folder)

    def undo(self) -> None:
        if os.path.lexists(self.folder) and not os.path.lexists(self.former):
            os.rename(self.folder, self.former)


Step = Create | Rewrite | Shift | Remove | Resettle


def do_again(step: Step) -> None:
    """After a crash: as far as it was not done. A letter that came and went on since is left where it is."""
    if isinstance(step, Create):
        with suppress(FileExistsError):
            step.do(durable=True)
    elif isinstance(step, (Rewrite, Shift)):
        former = f"{step.former}/{step.name}"
        if os.path.lexists(former):
            try:
                step.do(durable=True)
            except FileExistsError:
                pass
            except FileNotFoundError:
                if os.path.lexists(former):  # else a stranger was quicker
                    raise
    elif isinstance(step, Resettle):
        if is_vacant(step.folder):
            step.do(durable=True)
    else:
        step.do(durable=True)


def is_vacant(folder: str) -> bool:
    """Could a mailbox move in here? Nothing is there, or only empty folders."""
    if not os.path.lexists(folder):
        return True
    try:
        paper.check_folder(folder)
        return not any(os.listdir(within) for within in _within(folder))
    except NotADirectoryError:
        return False


def _make_room(folder: str) -> None:
    with suppress(FileNotFoundError):
        for within in _within(folder):
            os.rmdir(within)


def _within(folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in os.listdir(folder)]


def to_json(steps: list[Step], home: str) -> list[Any]:
    """With paths below the home of mailboxes: a room may be carried elsewhere before it is opened again."""
    plain: list[dict[str, Any]] = to_plain(steps)
    return [_each_path(step, lambda path: path.removeprefix(f"{home}/")) for step in plain]


def from_json(entry: Any, home: str) -> list[Step]:
    import msgspec  # noqa: PLC0415

    return msgspec.convert([_each_path(step, lambda path: f"{home}/{path}") for step in entry], list[Step])


def _each_path(step: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    return {name: change(value) if name in {"folder", "former"} else value for name, value in step.items()}


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)

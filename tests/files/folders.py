"""Helpers for a folder of mail: open it, list its letters, delete its index."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from postroom import Room
from postroom.settings import Settings
from postroom.store.files.layouts.base import Layout
from postroom.store.files.store import FileStore
from tests.letters import BOOT, BootClock


@contextmanager
def opened(root: Path, layout: Layout, boot: str = BOOT, **how: Any) -> Iterator[FileStore]:
    store = FileStore(root, layout, clock=BootClock(boot), **how)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def room(root: Path, layout: Layout, **settings: Any) -> Iterator[Room]:
    with opened(root, layout) as store:
        yield Room(store, Settings(**settings))


def rob(root: Path) -> None:
    """Delete the index and all that is beside it."""
    shutil.rmtree(root / ".postroom")


def letters_in(root: Path) -> dict[str, dict[str, Any]]:
    """Every letter's file, by its path below the root."""
    return {
        str(path.relative_to(root)): json.loads(path.read_bytes())
        for path in sorted(root.rglob("*.json"))
        if ".postroom" not in path.parts and path.name != "_registry.json"
    }


def home(root: Path, layout: Layout) -> Path:
    """Where the mailboxes are."""
    return root / layout.home if layout.home else root


def inbox(root: Path, layout: Layout, mailbox: str = "bob") -> Path:
    folder = home(root, layout) / layout.folder(mailbox)
    return folder / layout.places[0] if layout.places[0] else folder

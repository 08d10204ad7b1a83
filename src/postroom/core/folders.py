"""Folders and files of a room that keeps its mail in folders. In any other room there are none.

Other programs know an agent by its folder and a letter by its file, of which the store protocol knows nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..store.files.store import FileStore
from ..store.protocol import Introduce
from .names import is_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ..model.query import Found
    from .core import Core


def introduce_folders(core: Core, names: Iterable[str]) -> None:
    """Introduce the names that have a folder: each is an agent, though it may never have done anything."""
    # In another room, a name without mail or card is nobody.
    if isinstance(store := core.store, FileStore):
        new = [name for name in names if store.has_folder(name) and not is_known(core, name)]
        if new:
            store.commit([Introduce(name, known=True) for name in new])


def make_folders(core: Core, names: Iterable[str]) -> None:
    """Make the folder for new mail of each of these agents, so that other programs find it."""
    if isinstance(store := core.store, FileStore):
        for name in names:
            store.make_folder(name)


def file_contents(core: Core, found: Sequence[Found]) -> list[tuple[Found, str, dict[str, Any]]]:
    """Return these letters, all of one mailbox, in this order, each with name and content of its file.

    Letters whose files another program has just deleted or damaged are left out.
    """
    return core.store.file_contents(found) if isinstance(core.store, FileStore) else []


def id_in_file(core: Core, mailbox: str, place: str, name: str) -> str | None:
    """Return the id of the letter in this file of a mailbox; None if there is none."""
    return core.store.id_at(mailbox, place, name) if isinstance(core.store, FileStore) else None

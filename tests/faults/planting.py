"""How a bug is planted in any store: something stands before it, passes all on, and errs in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, cast

from postroom.environment import boot_id
from postroom.store.protocol import Store

BOOT = boot_id()


class Opener(Protocol):
    """Opens the room in a folder of its own; on this boot of the machine, or on one that a test made up."""

    def __call__(self, folder: Path, boot: str = BOOT, /) -> Store: ...


class Wrapped:
    """A store behind a store: whatever a subclass does not get wrong, the one behind it does."""

    def __init__(self, open_store: Opener, folder: Path, boot: str) -> None:
        self.folder, self.boot = folder, boot
        self.inner = open_store(folder, boot)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.inner, verb)


def planted(bug: type[Wrapped], open_store: Opener) -> Opener:
    """How to open a store with this bug."""
    return lambda folder, boot=BOOT: cast(Store, bug(open_store, folder, boot))

"""Whose letters lie in a folder? Asked once, where nobody of us has been, before anything is written there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .layouts import NAMES, layout_named
from .places import Places

if TYPE_CHECKING:
    from .layouts.base import Layout


def other_layout(root: str, wanted: str) -> str | None:
    """The layout that all of a folder's letters are of, if that is not the wanted one. None also where there are
    none at all, or where nobody may look.
    """
    if _holds(root, layout_named(wanted)):
        return None
    return next((name for name in NAMES if name != wanted and _holds(root, layout_named(name))), None)


def _holds(root: str, layout: Layout) -> bool:
    """Is there a letter that only this design names so, or its registry?"""
    places = Places(os.path.realpath(root), layout)
    try:
        if layout.registry and os.path.lexists(f"{places.home}/{layout.registry}"):
            return True
        return any(_holds_letter(places, folder) for folder in places.folders())
    except OSError:
        return False


def _holds_letter(places: Places, folder: str) -> bool:
    try:
        with os.scandir(places.path(folder)) as found:
            return any(places.layout.is_unmistakable(entry.name) for entry in found)
    except OSError:
        return False

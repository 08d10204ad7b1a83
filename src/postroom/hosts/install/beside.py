"""The same hooks in other places, which a host would run as well: in projects, or put in by hand.

It only looks. What is found is told; it keeps nobody from anything, for a letter is shown once all the same. But
each hook costs twice its time, and the two may disagree about who the agent is.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ...errors import Refused
from .. import recipes
from . import receipts
from .json_edit import value_at
from .layouts import layout_of
from .standing import standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layouts import Layout, Order

_BY_HAND = ("settings.json", "settings.local.json")  # of Claude Code, which has our hooks in a plugin


def beside(order: Order, layout: Layout, folder: str) -> list[str]:
    """A sentence for each place. `folder`: where receipts are kept."""
    told = [f"{path} runs hooks of Postroom, too: take them out of it." for path in _by_hand(order, layout)]
    if order.project is None:
        undo = f"postroom uninstall {order.host} --project"
        told += [
            f"{one} has Postroom, too: in that folder type {undo}." for one in _projects(order, layout, folder)
        ]
    return told


def _projects(order: Order, layout: Layout, folder: str) -> Iterator[str]:
    """Those in which something of ours stands: of all that were ever noted, and the working folder."""
    noted = [os.path.dirname(place) for place in receipts.places(folder, order.host)]
    for project in dict.fromkeys([*noted, os.getcwd()]):
        try:
            there = layout_of(order._replace(project=project))
            if there.place != layout.place and standing(there).is_any:
                yield project
        except Refused:  # what cannot be understood holds nothing of ours
            continue


def _by_hand(order: Order, layout: Layout) -> Iterator[str]:
    if order.host == "claude":
        for path in (os.path.join(layout.place, name) for name in _BY_HAND):
            if any(recipes.is_ours(order.host, entry) for entry in _entries(path)):
                yield path


def _entries(path: str) -> Iterator[dict[str, Any]]:
    """Every hook in a file of settings; none where it is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            groups = value_at(json.load(file), "hooks")
    except (OSError, ValueError, RecursionError):  # not for us to judge
        return
    for group in groups.values() if isinstance(groups, dict) else ():
        for inner in group if isinstance(group, list) else ():
            found = value_at(inner, "hooks")
            yield from (one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()

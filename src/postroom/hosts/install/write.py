"""Carrying out a plan: each file is written in one step.

The new contents are written to drafts next to the files, and synced. Then every file is checked once more, and the
drafts are renamed. Whatever goes wrong before that leaves all files as they were; after a kill in between, each
file is old or new, and the next call continues.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import Refused
from .. import recipes
from . import files
from .json_edit import value_at
from .layouts import layout_of
from .plan import install_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layouts import Layout, Order
    from .plan import Change, Plan


FOLDER_MODE = 0o700


def carry_out(plan: Plan, root: str) -> None:
    drafts: dict[str, str] = {}
    try:
        for folder in plan.make:
            with suppress(FileExistsError):
                os.mkdir(folder, FOLDER_MODE)
        for change in plan.changes:
            if change.after is not None:
                drafts[change.path] = _write_draft(change.path, change.after, change.mode)
        for change in plan.changes:
            _check_unchanged(change, root)
        for change in plan.changes:
            _apply(change, drafts)
    finally:
        for draft in drafts.values():
            with suppress(FileNotFoundError):
                os.unlink(draft)
        for folder in (*plan.drop, *reversed(plan.make)):
            with suppress(OSError):  # unless something is in it
                os.rmdir(folder)


def _write_draft(path: str, text: str, mode: int) -> str:
    """Write and sync a draft next to the file, and return its path. A draft of a killed call is replaced."""
    draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.postroom")
    with suppress(FileNotFoundError):
        os.unlink(draft)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except OSError:
        os.unlink(draft)
        raise
    return draft


def _check_unchanged(change: Change, root: str) -> None:
    """Refuse a file that its host, or somebody else, has written since it was shown."""
    found = files.look(change.path, root)
    if (found and found.text) != change.before:
        raise files.refused(change.path, "was changed meanwhile", "run the command again")


def _apply(change: Change, drafts: dict[str, str]) -> None:
    if change.after is None:
        os.unlink(change.path)
    else:
        os.replace(drafts[change.path], change.path)


# -- our hooks in other places: in projects, or installed by hand
#
# They are only reported. A letter is still shown only once, but each hook runs twice, and the two may use
# different agents.

_BY_HAND = ("settings.json", "settings.local.json")  # of Claude Code, where we install a plugin instead


def other_places(order: Order, layout: Layout) -> list[str]:
    """Return a sentence for each other place with our hooks."""
    results = [f"{path} runs hooks of Postroom too: remove them there." for path in _by_hand(order, layout)]
    project = os.getcwd()
    if order.project is None and _is_elsewhere(order._replace(project=project), layout.place):
        undo = f"postroom uninstall {order.host} --project"
        results.append(f"{project} has Postroom too: in that folder type {undo}.")
    return results


def _is_elsewhere(order: Order, place: str) -> bool:
    try:
        there = layout_of(order)
        return there.place != place and install_state(there).is_any
    except Refused:  # a file that cannot be read holds nothing of ours
        return False


def _by_hand(order: Order, layout: Layout) -> Iterator[str]:
    if order.host == "claude":
        for path in (os.path.join(layout.place, name) for name in _BY_HAND):
            if any(recipes.is_ours(order.host, entry) for entry in _entries(path)):
                yield path


def _entries(path: str) -> Iterator[dict[str, Any]]:
    """Yield every hook in a settings file; none if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            groups = value_at(json.load(file), "hooks")
    except (OSError, ValueError, RecursionError):  # the host reports it
        return
    for group in groups.values() if isinstance(groups, dict) else ():
        for inner in group if isinstance(group, list) else ():
            found = value_at(inner, "hooks")
            yield from (one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()

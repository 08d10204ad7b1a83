"""Carrying out a plan, all or nothing.

Everything is checked once more, then written beside each file and synced. Then the receipt is written, then one
rename follows the other. After a kill in between, each file is old or new, and the next call continues; after an
error, the changes are undone.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ...errors import Refused
from .. import recipes
from . import files
from .json_edit import value_at
from .layouts import layout_of
from .plan import FILE_MODE, Change, standing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .layouts import Layout, Order
    from .plan import Plan


FOLDER_MODE = 0o700


def carry_out(plan: Plan, root: str, receipt: str) -> None:
    """Do what the plan says, and keep its receipt at this path."""
    folder = os.path.dirname(receipt)
    os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
    with _alone(folder):
        for change in plan.changes:
            _check_unchanged(change, root)
        try:
            for made in plan.make:
                _make_folder(made)
            _write_all(_with_receipt(plan, receipt))
        except BaseException:
            _drop_folders(reversed(plan.make))
            raise
        _drop_folders(plan.drop)


def _with_receipt(plan: Plan, path: str) -> list[Change]:
    """It is there as long as anything is: put in before, taken away after all others."""
    before = _content(path)
    if plan.receipt.files:
        return [Change(path, before, files.dump(plan.receipt), FILE_MODE), *plan.changes]
    return [*plan.changes, *([] if before is None else [Change(path, before, None, FILE_MODE)])]


def _write_all(changes: Sequence[Change]) -> None:
    drafts: dict[str, str] = {}
    tried: list[Change] = []
    try:
        for change in changes:
            if change.after is not None:
                drafts[change.path] = _lay_ready(change.path, change.after, change.mode)
        for change in changes:
            tried.append(change)
            _take_step(change, drafts)
    except BaseException:
        _put_back(tried)
        raise
    finally:
        for draft in drafts.values():
            with suppress(FileNotFoundError):
                os.unlink(draft)


def _take_step(change: Change, drafts: dict[str, str]) -> None:
    """Once more in the last moment: syncing takes a while, and hosts write into these files, too."""
    if change.before is not None and _content(change.path) != change.before:
        raise _changed(change.path)
    if change.after is None:
        os.unlink(change.path)
        _sync_folder(change.path)
    else:
        _move(drafts[change.path], change.path, is_new=change.before is None)


def _put_back(tried: Sequence[Change]) -> None:
    """As it was; as far as a failing disk lets us, and only where nobody else was."""
    for change in reversed(tried):
        with suppress(OSError):
            if _content(change.path) != change.after:
                continue
            if change.before is None:
                os.unlink(change.path)
            else:
                _move(
                    _lay_ready(change.path, change.before, change.mode), change.path, is_new=change.after is None
                )


def _content(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _lay_ready(path: str, text: str, mode: int) -> str:
    """What the file shall hold, whole and synced, beside it. What an earlier call left there goes."""
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


def _move(draft: str, path: str, *, is_new: bool) -> None:
    """In one step. What somebody else put there meanwhile stays."""
    if is_new:
        os.link(draft, path)
        os.unlink(draft)
    else:
        os.replace(draft, path)
    _sync_folder(path)


def _sync_folder(path: str) -> None:
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_unchanged(change: Change, root: str) -> None:
    found = files.look(change.path, root)
    if (found and found.text) != change.before:
        raise _changed(change.path)


def _changed(path: str) -> Refused:
    return files.refused(path, "was changed meanwhile", "say it again")


def _make_folder(path: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(path, FOLDER_MODE)


def _drop_folders(folders: Iterator[str] | Sequence[str]) -> None:
    """Those in which nothing is left."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Nobody else installs meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# -- our hooks in other places: in projects, or installed by hand
#
# They are only reported. A letter is shown once all the same, but each hook costs twice its time, and the two may
# use different agents.

_BY_HAND = ("settings.json", "settings.local.json")  # of Claude Code, which has our hooks in a plugin


def beside(order: Order, layout: Layout, folder: str) -> list[str]:
    """A sentence for each place. `folder`: where receipts are kept."""
    results = [f"{path} runs hooks of Postroom, too: take them out of it." for path in _by_hand(order, layout)]
    if order.project is None:
        undo = f"postroom uninstall {order.host} --project"
        results += [
            f"{one} has Postroom, too: in that folder type {undo}." for one in _projects(order, layout, folder)
        ]
    return results


def _projects(order: Order, layout: Layout, folder: str) -> Iterator[str]:
    """Those in which something of ours stands: of all that were ever noted, and the working folder."""
    noted = [os.path.dirname(place) for place in files.places(folder, order.host)]
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

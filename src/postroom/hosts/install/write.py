"""Carrying out a plan, all or nothing.

Every file is checked once more. The new contents are written to drafts next to the files, and synced. Then the
receipt is written, then each draft is renamed. After a kill in between, each file is old or new, and the next call
continues; after an error, the changes are undone.
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
from .plan import FILE_MODE, Change, install_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .layouts import Layout, Order
    from .plan import Plan


FOLDER_MODE = 0o700


def carry_out(plan: Plan, root: str, receipt: str) -> None:
    """Carry out a plan, and keep its receipt at this path."""
    folder = os.path.dirname(receipt)
    os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
    with _locked(folder):
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
    """Return the changes with that of the receipt: written before all others, removed after them.

    So there is a receipt as long as any file has something of ours, even after a kill.
    """
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
                drafts[change.path] = _write_draft(change.path, change.after, change.mode)
        for change in changes:
            tried.append(change)
            _apply(change, drafts)
    except BaseException:
        _undo(tried)
        raise
    finally:
        for draft in drafts.values():
            with suppress(FileNotFoundError):
                os.unlink(draft)


def _apply(change: Change, drafts: dict[str, str]) -> None:
    """Make one change, unless the file has changed."""
    # Checked once more: syncing the drafts takes a while, and hosts write to these files too.
    if change.before is not None and _content(change.path) != change.before:
        raise _changed(change.path)
    if change.after is None:
        os.unlink(change.path)
        _sync_folder(change.path)
    else:
        _move(drafts[change.path], change.path, is_new=change.before is None)


def _undo(tried: Sequence[Change]) -> None:
    """Undo changes, as far as the disk allows it, and only in files that no other program has changed since."""
    for change in reversed(tried):
        with suppress(OSError):
            if _content(change.path) != change.after:
                continue
            if change.before is None:
                os.unlink(change.path)
            else:
                _move(
                    _write_draft(change.path, change.before, change.mode), change.path, is_new=change.after is None
                )


def _content(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (FileNotFoundError, UnicodeDecodeError):
        return None


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


def _move(draft: str, path: str, *, is_new: bool) -> None:
    """Move a draft to its place in one step. A new file replaces none that was created meanwhile."""
    if is_new:  # unlike rename, link fails if the file exists
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
    return files.refused(path, "was changed meanwhile", "run the command again")


def _make_folder(path: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(path, FOLDER_MODE)


def _drop_folders(folders: Iterator[str] | Sequence[str]) -> None:
    """Remove the folders that are empty."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock the folder of receipts, so that only one process installs at a time."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# -- our hooks in other places: in projects, or installed by hand
#
# They are only reported. A letter is still shown only once, but each hook runs twice, and the two may use
# different agents.

_BY_HAND = ("settings.json", "settings.local.json")  # of Claude Code, where we install a plugin instead


def other_places(order: Order, layout: Layout, folder: str) -> list[str]:
    """Return a sentence for each other place with our hooks. `folder` is that of the receipts."""
    results = [f"{path} runs hooks of Postroom too: remove them there." for path in _by_hand(order, layout)]
    if order.project is None:
        undo = f"postroom uninstall {order.host} --project"
        results += [
            f"{one} has Postroom too: in that folder type {undo}." for one in _projects(order, layout, folder)
        ]
    return results


def _projects(order: Order, layout: Layout, folder: str) -> Iterator[str]:
    """Yield the projects with our hooks: of those with a receipt, and the working folder."""
    noted = [os.path.dirname(place) for place in files.places(folder, order.host)]
    for project in dict.fromkeys([*noted, os.getcwd()]):
        try:
            there = layout_of(order._replace(project=project))
            if there.place != layout.place and install_state(there).is_any:
                yield project
        except Refused:  # a file that cannot be read holds nothing of ours
            continue


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

"""The place of a room on disk: may it hold one, which file stands there, and how files are synced.

A room needs a regular file of this user, with one name, on a local file system whose locks can be trusted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from ...errors import BadStore, StoreFailing

if TYPE_CHECKING:
    from ...errors import PostroomError


NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs", "lustre"}
)
OF_THE_KERNEL = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs"})

# Temporary failures: no space, no handles, a disk that fails or was made read-only.
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EROFS}
)
LOCKED = ("-wal", ".lock")  # ends of the names of a room's other files that must have no second name
_full_sync: int | None = getattr(fcntl, "F_FULLFSYNC", None)


Place = str | os.PathLike[str]


def prepare(place: Place) -> str:
    """Return the real path of the room's file, in a folder that is made if need be; BadStore if it is unusable."""
    path = os.path.realpath(place)  # one file, one lock: no second name by a symbolic link
    folder = os.path.dirname(path)
    make_folder(folder)
    _check_file_system(folder)
    _check_file(path)
    for end in LOCKED:
        with suppress(FileNotFoundError):
            _check_name(f"{path}{end}", os.stat(f"{path}{end}"))
    return path


def create(path: Place) -> None:
    """Make the file, readable by its owner alone, if it does not exist. Call it under the lock.

    An existing file is never opened here: closing it again would drop the locks SQLite holds in this process.
    """
    try:
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDWR, 0o600)
    except FileExistsError:
        return
    os.close(made)
    # Without it a power cut could take the file's name, and all letters with it (G1).
    sync_path(os.path.dirname(path))


def sync_file(descriptor: int) -> None:
    """Bring a file's data to stable storage. On macOS only F_FULLFSYNC does that."""
    if _full_sync is None:
        os.fdatasync(descriptor)
    else:
        fcntl.fcntl(descriptor, _full_sync)


def sync_path(path: Place) -> None:
    """Bring a folder, or a file that no process has open, to stable storage."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: str) -> None:
    """Make a folder with its parents, for the owner alone, and sync it so that it survives a power cut."""
    missing, place = [], folder
    while not os.path.lexists(place):
        missing.append(place)
        place = os.path.dirname(place)
    try:
        for place in reversed(missing):
            with suppress(FileExistsError):  # another process makes it too
                os.mkdir(place, mode=0o700)
            sync_path(os.path.dirname(place))
    except OSError as broken:
        raise _refusal(f"the folder {folder} cannot be made: {broken.strerror}", broken) from None
    if not os.path.isdir(folder):
        raise BadStore(f"{folder} is not a folder", field="store")


def check_usable(place: Place, *, is_folder: bool) -> None:
    """Refuse a place where no room can be made or opened, as far as that shows without making anything."""
    path = os.path.realpath(place)
    nearest = path if is_folder else os.path.dirname(path)
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest):
        raise BadStore(f"{nearest} is not a folder", field="store")
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise BadStore(
            f"the folder {nearest} may not be written",
            field="store",
            hint="correct its owner and mode (chown, chmod)",
        )
    _check_file_system(nearest)
    if file_system(nearest) in OF_THE_KERNEL:
        raise BadStore(f"{nearest} is the kernel's: no file can be made there", field="store")
    if not is_folder:
        _check_file(path)


def _check_file(path: str) -> None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    except OSError as broken:
        raise _refusal(f"{path} cannot be reached: {broken.strerror}", broken) from None
    if stat.S_ISDIR(found.st_mode):
        raise BadStore(f"{path} is a folder", field="store", hint=f"name a file in it: sqlite:{path}/room.db")
    if not stat.S_ISREG(found.st_mode):
        raise BadStore(f"{path} is not a regular file", field="store")
    _check_name(path, found)
    if found.st_uid != os.geteuid():
        raise BadStore(f"{path} belongs to another user (uid {found.st_uid})", field="store")


def _check_name(path: str, found: os.stat_result) -> None:
    """Refuse a file with two names: each would have its own log and lock, and overwrite the other's letters."""
    if found.st_nlink > 1:
        from shlex import quote  # noqa: PLC0415 - rare

        where = quote(path)
        raise BadStore(
            f"{path} has a second name (a hard link), so locks would not hold",
            field="store",
            hint=f"remove the other name (find / -xdev -samefile {where} shows it), or stop all agents and make"
            f" this a file of its own: cp -p {where} {where}.own && mv {where}.own {where}",
        )


def _check_file_system(folder: str) -> None:
    try:
        kind = file_system(folder)
    except OSError as broken:
        raise _refusal(f"{folder} cannot be looked at: {broken.strerror}", broken) from None
    # Neither flock nor SQLite's shared memory works across machines: two hosts would overwrite each other.
    if kind in NETWORK:
        raise BadStore(
            f"{folder} is on a network file system ({kind}), where locks cannot be trusted",
            field="store",
            hint="use a local disk",
        )


def _refusal(what: str, broken: OSError) -> PostroomError:
    """Return the error for a place that can hold no room, now or ever."""
    if broken.errno in _PASSING:
        return StoreFailing(what, hint="try again later")
    return BadStore(what, field="store")


def file_system(folder: Place) -> str:
    """Return the kind of file system, or '' where the system does not report it."""
    if sys.platform != "linux":
        return ""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            if before.split(" ", 3)[2] == wanted:
                return after.split(" ", 1)[0]
    return ""

"""Which file stands at a path, or is open under a number, asking for nothing else.

Not `os.stat`: it asks for times too, and since Linux 6.13 a file whose times were asked for gets an exact time at
its next write, which costs a journal entry and makes the next sync a third slower (measured). It is
loaded by whoever commits a second time: the first time there is nothing to compare.
"""

from __future__ import annotations

import ctypes
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


_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_STATX_INO = 0x100
_INO_AT = 32  # its place in struct statx
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)  # Linux; macOS has no such trap


class FileAt:
    """Which file stands at a path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        answer = ctypes.create_string_buffer(256)
        self._question = (_AT_FDCWD, os.fsencode(path), 0, _STATX_INO, answer)
        self._inode = ctypes.c_uint64.from_buffer(answer, _INO_AT)

    def inode(self) -> int:
        if _statx is None:
            return os.stat(self._path).st_ino
        if _statx(*self._question) != 0:
            raise OSError(ctypes.get_errno(), "cannot be reached", str(self._path))
        return self._inode.value


def inode_of(descriptor: int) -> int:
    """Which file is open under this number."""
    if _statx is None:
        return os.fstat(descriptor).st_ino
    answer = ctypes.create_string_buffer(256)
    if _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_INO, answer) != 0:
        raise OSError(ctypes.get_errno(), "cannot be reached")
    return ctypes.c_uint64.from_buffer(answer, _INO_AT).value


# May this place hold a room? Owner, modes, and a file system whose locks can be trusted.

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs", "lustre"}
)
OF_THE_KERNEL = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs"})

# A place that cannot be used for now: no space, no handles, a disk that fails or was made read-only.
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EROFS}
)
LOCKED = ("-wal", ".lock")  # ends of the names of a room's other files that must have no second name
_full_sync: int | None = getattr(fcntl, "F_FULLFSYNC", None)


Place = str | os.PathLike[str]


def prepare(place: Place) -> str:
    """The real path of the room's file, in a folder that exists, or BadStore."""
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
    """Make the file, for its owner alone, if it is not there. Call under the lock.

    An existing file is never opened here: closing it again would drop the locks SQLite holds in this process.
    """
    try:
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDWR, 0o600)
    except FileExistsError:
        return
    os.close(made)
    sync_path(os.path.dirname(path))


def sync_file(descriptor: int) -> None:
    """Its data is on stable storage when this returns. On macOS only F_FULLFSYNC means that."""
    if _full_sync is None:
        os.fdatasync(descriptor)
    else:
        fcntl.fcntl(descriptor, _full_sync)


def sync_path(path: Place) -> None:
    """A file that nobody has open, or a folder, is on stable storage when this returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: str) -> None:
    """With all that leads to it, for its owner alone, and so that it lasts."""
    missing, place = [], folder
    while not os.path.lexists(place):
        missing.append(place)
        place = os.path.dirname(place)
    try:
        for place in reversed(missing):
            with suppress(FileExistsError):  # somebody else makes it too
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
        raise BadStore(f"the folder {nearest} may not be written", field="store", hint="mend its owner and mode")
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
    """A room that is opened by two names has two logs and two locks: each would write over the other's letters."""
    if found.st_nlink > 1:
        from shlex import quote  # noqa: PLC0415 - rare

        where = quote(path)
        hint = (
            f"remove the other name (find / -xdev -samefile {where} shows it), or stop all agents and make this a"
            f" file of its own: cp -p {where} {where}.own && mv {where}.own {where}"
        )
        what = f"{path} has a second name (a hard link), so locks would not hold"
        raise BadStore(what, field="store", hint=hint)


def _check_file_system(folder: str) -> None:
    try:
        kind = file_system(folder)
    except OSError as broken:
        raise _refusal(f"{folder} cannot be looked at: {broken.strerror}", broken) from None
    if kind in NETWORK:
        raise BadStore(
            f"{folder} is on a network file system ({kind}), where locks cannot be trusted",
            field="store",
            hint="use a local disk",
        )


def _refusal(what: str, broken: OSError) -> PostroomError:
    """This place can hold no room, or not for now."""
    if broken.errno in _PASSING:
        return StoreFailing(what, hint="try again later")
    return BadStore(what, field="store")


def file_system(folder: Place) -> str:
    """The kind of file system, or '' where the system does not tell."""
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

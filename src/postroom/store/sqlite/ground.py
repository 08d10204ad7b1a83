"""May this place hold a room? Owner, modes, and a file system whose locks can be trusted."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

from ...errors import BadStore, PostroomError, StoreFailing

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs", "lustre"}
)


# A place that cannot be used for now: no space, no handles, a disk that fails or was made read-only.
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EROFS}
)
_full_sync: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_AT_FDCWD = -100
_STATX_INO = 0x100
_INO_AT = 32  # its place in struct statx
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)  # Linux; macOS has no such trap


def prepare(path: Path) -> Path:
    """The real path of the room's file, in a folder that exists, or BadStore."""
    path = Path(os.path.realpath(path))  # one file, one lock: no second name by a symbolic link
    _make_folder(path.parent)
    _check_file_system(path.parent)
    _check_file(path)
    return path


def create(path: Path) -> None:
    """Make the file, for its owner alone, if it is not there. Call under the lock.

    An existing file is never opened here: closing it again would drop the locks SQLite holds in this process.
    """
    try:
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDWR, 0o600)
    except FileExistsError:
        return
    os.close(made)
    sync_path(path.parent)


def sync_file(descriptor: int) -> None:
    """Its data is on stable storage when this returns. On macOS only F_FULLFSYNC means that."""
    if _full_sync is None:
        os.fdatasync(descriptor)
    else:
        fcntl.fcntl(descriptor, _full_sync)


def sync_path(path: Path) -> None:
    """A file that nobody has open, or a folder, is on stable storage when this returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileAt:
    """Which file stands at a path, asking for nothing else.

    Not `os.stat`: it asks for times too, and since Linux 6.13 a file whose times were asked for gets an exact
    time at its next write, which costs a journal entry and makes the next sync a third slower (measured).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        answer = ctypes.create_string_buffer(256)
        self._question = (_AT_FDCWD, os.fsencode(path), 0, _STATX_INO, answer)
        self._inode = ctypes.c_uint64.from_buffer(answer, _INO_AT)

    def inode(self) -> int:
        if _statx is None:
            return self._path.stat().st_ino
        if _statx(*self._question) != 0:
            raise OSError(ctypes.get_errno(), "cannot be reached", str(self._path))
        return self._inode.value


def _make_folder(folder: Path) -> None:
    missing = [folder, *folder.parents]
    missing = missing[: next(i for i, place in enumerate(missing) if os.path.lexists(place))]
    try:
        for place in reversed(missing):
            place.mkdir(mode=0o700, exist_ok=True)
            sync_path(place.parent)
    except OSError as broken:
        raise _refusal(f"the folder {folder} cannot be made: {broken.strerror}", broken) from None
    if not folder.is_dir():
        raise BadStore(f"{folder} is not a folder", field="store")


def _check_file(path: Path) -> None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    except OSError as broken:
        raise _refusal(f"{path} cannot be reached: {broken.strerror}", broken) from None
    if stat.S_ISDIR(found.st_mode):
        raise BadStore(f"{path} is a folder", field="store", hint=f"name a file in it: sqlite:{path}/room.db")
    if not stat.S_ISREG(found.st_mode):
        raise BadStore(f"{path} is not a regular file", field="store")
    if found.st_nlink > 1:
        raise BadStore(f"{path} has a second name (hard link)", field="store", hint="locks would not hold")
    if found.st_uid != os.geteuid():
        raise BadStore(f"{path} belongs to another user (uid {found.st_uid})", field="store")


def _check_file_system(folder: Path) -> None:
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


def file_system(folder: Path) -> str:
    """The kind of file system, or '' where the system does not tell."""
    if sys.platform != "linux":
        return ""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            if before.split(" ", 3)[2] == wanted:
                return after.split(" ", 1)[0]
    return ""

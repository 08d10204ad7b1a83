"""A power cut on a real file system: a small disk in a file, which is told to stop in the middle of everything.

The file system (ext4 or xfs) lies on a loop device. `FS_IOC_SHUTDOWN` ends it without writing anything more, not
even its journal; mounting it again replays what had reached the disk. That needs root and a free loop device.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), for ext4 and xfs alike
_WITHOUT_JOURNAL = 2  # not even the journal is written out
_SIZE = 320 * 1024 * 1024  # the smallest that xfs takes
PATIENCE = 60
TOOLS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}


class PowerCut:
    """A disk that can be cut off and switched on again."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._image, self.root = folder / f"{kind}.disk", folder / kind
        self._kind, self._more = kind, ""
        with self._image.open("wb") as image:
            image.truncate(_SIZE)
        self.root.mkdir()
        _run(*MAKE[kind], str(self._image))
        self.switch_on()

    def switch_on(self) -> None:
        _run("mount", "-o", f"loop{self._more}", str(self._image), str(self.root))

    def switch_on_again(self) -> None:
        """From a copy: the cut disk may live on in the mounts of another process, and would be what we get."""
        self.remove()
        again = self._image.with_suffix(".again")
        _run("cp", "--sparse=always", str(self._image), str(again))
        self._image, self._more = again, ",nouuid" if self._kind == "xfs" else ""
        self.switch_on()

    def cut(self) -> None:
        """From now on nothing reaches the disk."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_JOURNAL))
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        _run("umount", str(self.root))


@contextmanager
def disk(kind: str, folder: Path) -> Iterator[PowerCut]:
    made = PowerCut(kind, folder)
    try:
        yield made
    finally:
        made.remove()


def why_not(kind: str, folder: Path) -> str | None:
    """Why there can be no power cut here, or None."""
    if os.geteuid() != 0:
        return "only root can mount a disk to cut its power"
    if shutil.which(MAKE[kind][0], path=TOOLS) is None:
        return f"{MAKE[kind][0]} is not installed"
    try:
        with disk(kind, folder) as tried:
            tried.cut()
    except (subprocess.CalledProcessError, OSError) as refused:
        return f"no {kind} disk can be mounted and cut off here: {refused}"
    return None


def _run(*command: str) -> None:
    program = shutil.which(command[0], path=TOOLS) or command[0]
    subprocess.run([program, *command[1:]], check=True, capture_output=True, timeout=PATIENCE)

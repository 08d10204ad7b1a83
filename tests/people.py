"""A person with a key of their own, for tests: the key is a file, as a person's is."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from postroom import Mailbox, Room
from postroom.core.key_file import KeyFile


@cache
def key_file(owner: str = "person") -> KeyFile:
    """The key of somebody at a terminal; another owner has another key."""
    return KeyFile(str(_folder() / f"{owner}.key"), at_terminal=True)


@cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="postroom-keys-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def signing(room: Room, owner: str = "person") -> Room:
    """The room for a caller with this key."""
    return room.acting_as(replace(room.principal, signer=key_file(owner)))


def person(room: Room, name: str = "human") -> Mailbox:
    """The person's own mailbox, where the person is the caller."""
    return signing(room, "person" if name == "human" else name).mailbox(name)

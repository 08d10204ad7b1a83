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
from postroom.core.people import AddPerson, live_keys
from postroom.core.verb import perform
from postroom.model.message import same_name


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
    """The person's own mailbox, where the person is the caller. The human admits others."""
    if name != "human" and not same_name(name, room.core.limits.human) and not live_keys(room.core, name):
        first = signing(room).principal
        perform(room.core, first, AddPerson(person=name, key=key_file(name).public()))
    return signing(room, "person" if name == "human" else name).mailbox(name)

"""This program and a room, named so that they mean the same from anywhere: for lines that are typed or pasted."""

from __future__ import annotations

import os
import sys
from shlex import quote
from shutil import which

from ..daemon.unit import absolute
from ..store.opening import file_of, place_of
from ..whereabouts import environment, own_room


def program() -> list[str]:
    """How it is started, by whole paths: a host may have another PATH than the shell."""
    started = os.path.abspath(sys.argv[0])
    is_script = os.path.basename(started) == "postroom" and os.access(started, os.X_OK)
    return [started] if is_script else [sys.executable, "-P", "-m", "postroom"]  # never one of the working folder


def typed_program() -> str:
    """The same as one types it in a shell."""
    found = which("postroom")  # another one may be on the path, with other extras
    is_ours = found is not None and [os.path.realpath(found)] == [os.path.realpath(word) for word in program()]
    return "postroom" if is_ours else " ".join(map(quote, program()))


def whole_address(store: str) -> str:
    """A room's address; a plain path where that does. A room in memory has no other."""
    if place_of(store) is None:
        return store
    path = absolute(store).removeprefix("sqlite:")
    return path if ":" not in path or file_of(store) is None else absolute(store)


def whole_path(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def is_own(store: str) -> bool:
    """Is it the room that is opened where none is named, nor a project's is around?"""
    path = file_of(store)
    return path is not None and os.path.abspath(path) == os.path.abspath(own_room(environment()))

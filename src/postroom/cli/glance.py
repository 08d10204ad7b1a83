"""The quick answers: there is nothing unread, said without loading the library.

Hooks ask at every prompt, and mostly there is nothing. When it is not certain, or anything unusual was said, there
is no quick answer, and the command runs as usual.
"""

from __future__ import annotations

import os

from ..whereabouts import PREFIX, config_path, environment, own_room, project_room, variable
from .light import Uninterrupted
from .notes import note_passed_by, note_unknown
from .table import FILE_OF

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .parse import Call

FILES = "files:"
NO_MAIL = "No unread mail for {0}.\n"
NO_DIGEST = "You have no unread letters.\n"
_NO_COUNTS = '"urgent":0,"high":0,"normal":0,"low":0,"total":0'
_SAID = frozenset({"as", "room", "json", "peek"})  # with any other option the library must check its value
# Variables that change no rule.
_NO_SETTINGS = frozenset(
    {"AGENT", "STORE", "TOKEN", "ID", "LETTER", "SOCKET", "HTTP", "INBOXES", "PEERS", "HOOK_SECONDS"}
)
_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")

# command -> (text, fields of the JSON answer), for a mailbox {0} without unread mail
_EMPTY = {
    "check": (NO_MAIL, '"mailbox":"{0}","letters":[]'),
    "counts": ("", f'"mailbox":"{{0}}",{_NO_COUNTS}'),
    "digest": (NO_DIGEST, '"mailbox":"{0}","text":"You have no unread letters."'),
}


def quick_answer(call: Call) -> str | None:
    """What to print, or None: run the command."""
    if call.name.startswith("hook ") and "help" not in call.values:
        return _quick_hook(call)
    empty = _EMPTY.get(call.name)
    if empty is None or not call.values.keys() <= _SAID:
        return None
    text, fields = empty
    wanted = f'{{"schema":1,"command":"{call.name}",{fields}}}\n' if "json" in call.values else text
    me = call.values.get("as") or variable("POSTROOM_AGENT")
    if not wanted or not is_plain_name(me):
        return None
    passed_by: list[tuple[str, str]] = []
    others: list[str] = []
    if not chosen_room_has_nothing(call.values, me, passed_by, others):
        return None
    note_passed_by(call, passed_by)
    note_unknown(call, me, others)
    return wanted.replace("{0}", me)


def _quick_hook(call: Call) -> str | None:
    if FILE_OF[call.name] == "hosts":
        from .host_quick import quick_host  # noqa: PLC0415 - only for hooks of hosts

        return quick_host(call)
    from .hook_quick import quick_hook  # noqa: PLC0415 - only for hooks

    return quick_hook(call)


def chosen_room_has_nothing(
    values: Mapping[str, Any], mailbox: str, passed_by: list[tuple[str, str]], others: list[str] | None = None
) -> bool:
    """Has the room that these options choose surely nothing unread? Where no room was made yet, nobody has mail;
    one that was named with `--room` and is not there is a typing error, which the command reports.
    """
    room = room_of(values.get("room"), passed_by)
    if room is None:
        return False
    return ("room" not in values and _is_not_made(room)) or room_has_nothing(room, mailbox, others)


def _is_not_made(room: str) -> bool:
    if room.startswith(FILES):  # whether the address is sound is for the store to judge
        return False
    try:
        os.stat(room)
    except OSError as missing:
        return isinstance(missing, FileNotFoundError)
    return False


def room_has_nothing(room: str, mailbox: str, others: list[str] | None = None) -> bool:
    """Has it surely nothing unread? `room` is its file, or the address of one of files. Where nobody there is
    called so, the names there are are put into `others`.
    """
    with Uninterrupted():
        import apsw  # noqa: F401, PLC0415 - the weight of the whole look; not before it is needed

        if room.startswith(FILES):
            from ..store.files.glance import is_surely_empty  # noqa: PLC0415
        else:
            from ..store.sqlite.glance import is_surely_empty  # noqa: PLC0415

    return is_surely_empty(room, mailbox, others)


def room_of(named: str | None, passed_by: list[tuple[str, str]]) -> str | None:
    """The room's file as the settings would choose it, or the address of one of files; None when that takes more
    than a look.
    """
    said = environment()
    if any(name.startswith(PREFIX) and name.removeprefix(PREFIX) not in _NO_SETTINGS for name in said):
        return None
    if os.path.exists(config_path(said)):  # noqa: PTH110 - light
        return None
    address = named or variable("POSTROOM_STORE")
    if not address:
        return project_room(passed_by=passed_by) or own_room(said)
    if address.startswith(FILES):
        return address
    path = address.removeprefix("sqlite:").removeprefix("//")
    unusual = not path or ":" in path or "?" in path or "\n" in path or path.startswith("~") or path.endswith("/")
    if unusual or not (address.startswith("sqlite:") or path.endswith(".db") or "/" in path):
        return None
    return path


def is_plain_name(name: str) -> bool:
    """A name that the house allows, without a swarm; any other is looked at properly."""
    return 0 < len(name) <= 128 and _NAME.issuperset(name) and name[0] not in "._-"

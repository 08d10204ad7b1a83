"""The quick answers: nothing is unread, or a hook has nothing to show.

Hooks and agents ask at every prompt, and mostly there is nothing. This module answers that without importing the
rest of the program. Where it is not certain, or a word is unusual, there is no quick answer and the command runs.
"""

from __future__ import annotations

import sys

from .. import __version__
from ..constants import NO_DIGEST, NO_MAIL
from ..environment import variable
from ..hosts.dialects import DIALECTS
from ..hosts.quick import Look, chosen_room_has_nothing, is_plain_name, look
from .main import QUICK_FLAGS

_NO_COUNTS = '"urgent":0,"high":0,"normal":0,"low":0,"total":0'
# command -> (text, fields of the JSON answer), for a mailbox {0} without unread mail
_EMPTY = {
    "check": (NO_MAIL, '"mailbox":"{0}","letters":[]'),
    "counts": ("", f'"mailbox":"{{0}}",{_NO_COUNTS}'),
    "digest": (NO_DIGEST, '"mailbox":"{0}","text":"You have no unread letters."'),
}
_WITH_VALUE = frozenset({"--as", "--room"})
_HOOKS = frozenset({"prompt", "session-start", *DIALECTS})


def understood(words: list[str]) -> tuple[str, dict[str, object]] | None:
    """Return a command and its options; None where a word is unusual, so that the whole parser must read it."""
    if not words or words[0] not in QUICK_FLAGS or not all(word.isascii() for word in words):
        return None
    first = 2 if words[0] == "hook" else 1
    if first == 2 and (len(words) < 2 or words[1] not in _HOOKS):
        return None
    values: dict[str, object] = {}
    rest = iter(words[first:])
    for word in rest:
        option, equals, value = word.partition("=")
        name = option[2:]
        if name in values:
            return None
        if option in _WITH_VALUE:
            value = value if equals else next(rest, "-")
            if value.startswith("-"):
                return None
            values[name] = value
        elif word in QUICK_FLAGS[words[0]]:
            values[name] = True
        else:
            return None
    return " ".join(words[:first]), values


def quick_look(command: str, values: dict[str, object]) -> Look:
    """Return what to print, where that is certain without running the command."""
    if command.startswith("hook "):
        return look(command, values)
    empty = _EMPTY.get(command)
    me = str(values.get("as") or variable("POSTROOM_AGENT"))
    if empty is None or not values.keys() <= {"as", "room", "json", "peek"} or not is_plain_name(me):
        return Look(None)
    text, fields = empty
    wanted = f'{{"schema":1,"command":"{command}",{fields}}}\n' if "json" in values else text
    passed_by: list[tuple[str, str]] = []
    others: list[str] = []
    is_empty = bool(wanted) and chosen_room_has_nothing(values, me, passed_by, others)
    # The command notes a room that is passed by, and a name that was probably meant.
    if not is_empty or passed_by or any(could_be(me.lower(), other.lower()) for other in others):
        return Look(None)
    return Look(wanted.replace("{0}", me))


def could_be(word: str, other: str) -> bool:
    """Return whether at most two letters differ. Names that differ in digits alone are different agents."""
    if _without_digits(word) == _without_digits(other):
        return False
    left, wrong = list(other), 0
    for letter in word:
        if letter in left:
            left.remove(letter)
        else:
            wrong += 1
    return max(wrong, len(left)) <= (1 if len(word) < 4 else 2)


def _without_digits(word: str) -> str:
    return "".join(letter for letter in word if not letter.isdigit())


def version() -> dict[str, str]:
    """Return the versions of this program and of what it runs on."""
    import apsw  # noqa: PLC0415 - rare

    return {"version": __version__, "python": sys.version.split()[0], "sqlite": apsw.sqlite_lib_version()}


def version_text(known: dict[str, str]) -> str:
    return f"postroom {known['version']} (Python {known['python']}, SQLite {known['sqlite']})\n"

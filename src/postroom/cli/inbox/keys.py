"""From the bytes of a keyboard to keys. Bytes come in pieces: half a letter, or half a key, waits for the rest."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

_PASTE, _PASTED = "\033[200~", "\033[201~"  # around what a terminal pastes
_SEQUENCE = re.compile(r"\033(?:\[[0-9;<=>?]*[ -/]*[@-~]|O[ -~])")
_HALF = re.compile(r"\033(?:\[[0-9;<=>?]*[ -/]*|O)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NAMED = {
    "\n": "enter", "\r": "enter", "\x7f": "backspace", "\x08": "backspace", "\x01": "home", "\x05": "ctrl-e",
    "\x0e": "down", "\x10": "up", "\x15": "ctrl-u", "\x17": "ctrl-w",
    "\033[A": "up", "\033[B": "down", "\033[C": "right", "\033[D": "left", "\033[H": "home", "\033[F": "end",
    "\033OA": "up", "\033OB": "down", "\033OC": "right", "\033OD": "left", "\033OH": "home", "\033OF": "end",
    "\033[1~": "home", "\033[4~": "end", "\033[7~": "home", "\033[8~": "end", "\033[3~": "delete",
    "\033[5~": "pgup", "\033[6~": "pgdn",
}  # fmt: skip


class Key(NamedTuple):
    """A key by its name, and the text that it writes, if any. The name of a letter is the letter."""

    name: str
    text: str = ""


class Keyboard:
    """Feed it bytes; it gives the keys that are whole."""

    def __init__(self) -> None:
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""
        self._pasted: str | None = None  # so far, while something is pasted

    @property
    def waits(self) -> bool:
        """Is there half a key? If nothing follows soon, it was Esc: `flush`."""
        return bool(self._left) and self._pasted is None

    def feed(self, said: bytes) -> list[Key]:
        """The keys that are whole with these bytes."""
        self._left += self._letters.decode(said)
        keys: list[Key] = []
        while self._left and (key := self._next()) is not None:
            keys += key
        return keys

    def flush(self) -> list[Key]:
        """Nothing more came: Esc is the key itself."""
        left, self._left = self._left, ""
        return [Key("esc"), *(Key(letter, letter) for letter in left[1:])]

    def _next(self) -> list[Key] | None:
        """The keys at the beginning of what is left; None while only half of one is there."""
        if self._pasted is not None:
            return self._paste()
        if self._left[0] != "\033":
            return [self._take(1)]
        whole = _SEQUENCE.match(self._left)
        if whole is not None and whole[0] == _PASTE:
            self._left, self._pasted = self._left[len(_PASTE) :], ""
            return []
        if whole is not None:
            return [self._take(len(whole[0]))]
        if _HALF.fullmatch(self._left):
            return None
        self._left = self._left[1:]
        return [Key("esc")]

    def _paste(self) -> list[Key] | None:
        text, end, rest = (self._pasted or "", *self._left.partition(_PASTED)[1:])
        if not end:
            keep = len(_PASTED) - 1  # half of the end may be there
            self._pasted, self._left = text + self._left[:-keep], self._left[-keep:]
            return None
        text += self._left[: -len(end + rest)]
        self._pasted, self._left = None, rest
        return [Key("paste", _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))]

    def _take(self, length: int) -> Key:
        said, self._left = self._left[:length], self._left[length:]
        name = _NAMED.get(said, "")
        if name == "enter" and self._left[:1].isprintable() and self._left:
            return Key("newline", "\n")  # nobody types that fast: it was pasted by a terminal that does not say so
        if name:
            return Key(name)
        return Key(said, said) if length == 1 and said.isprintable() else Key("unknown")

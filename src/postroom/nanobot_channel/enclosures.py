"""What is in a letter besides text: data becomes text, files become media in a folder of ours.

A file's bytes come in the letter. Where a stranger sent only a path, it is shown as text: no path is ever followed
here. Whatever cannot be taken is said in the text; it never stops the letter.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from ..model.codec import encode
from ..model.parts import file, reference

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..model.message import Message
    from ..model.parts import Part

MOST_FILES = 20  # of one letter
MOST_BYTES = 20 * 1024 * 1024  # of them all
MARK = 20  # characters that no other letter's folder has
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Unpacked(msgspec.Struct, frozen=True):
    """A letter's content as a model can use it."""

    text: str
    media: tuple[str, ...]  # paths of files


def unpack(letter: Message, folder: Path) -> Unpacked:
    """The content as text, and its files below `folder`."""
    pieces: list[str] = []
    media: list[str] = []
    room = MOST_BYTES
    for number, part in enumerate(letter.parts):
        if part.type == "file":
            files_left = MOST_FILES - len(media)
            file = _file(part, folder / _folder_of(letter.id), number, room if files_left else 0)
            pieces.append(file.said)
            media += [file.path] if file.path else []
            room -= file.size
        else:
            pieces.append(_text(part))
    if letter.attachments:
        pieces.append("Attachments:\n" + "\n".join(f"- {name}" for name in letter.attachments))
    return Unpacked("\n\n".join(pieces), tuple(media))


def _text(part: Part) -> str:
    """What a stranger left out does not stop the letter: such a part is shown as it is."""
    if part.type == "text" and part.get("text") is not None:
        return str(part["text"])
    if part.type == "reference" and part.get("uri") is not None:
        return f"[{part.get('label') or 'reference'}]({part['uri']})"
    if part.type == "data" and part.get("data") is not None:
        name = f" ({part['schema']})" if part.get("schema") else ""
        return f"[data{name}]\n{json.dumps(part['data'], ensure_ascii=False, indent=2)}"
    return f"[{part.type}] {encode(part).decode()}"


class _File(msgspec.Struct, frozen=True):
    """What is said of a file, where it lies now, and what it takes there."""

    said: str
    path: str | None = None
    size: int = 0


def _file(part: Part, folder: Path, number: int, room: int) -> _File:
    name = str(part.get("path") or "").replace("\\", "/").rpartition("/")[2] or "file"
    if part.get("bytes") is None:
        size = part.get("size")
        about = f", {size} bytes" if isinstance(size, int) else ""
        return _File(f"[file {name}{about}: it came without its content]")
    try:
        content = _bytes(part["bytes"], room)
        path = folder / f"{number}-{_safe(name)}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
    except (OSError, ValueError) as refused:
        return _File(f"[file {name} was not taken: {refused}]")
    return _File(f"[file {name}, {len(content)} bytes: {path}]", str(path), len(content))


def _bytes(enclosed: Any, room: int) -> bytes:
    try:
        content = base64.b64decode(enclosed, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ValueError("its bytes are not base64 text") from None
    if len(content) > room or not room:
        raise ValueError(f"a letter may bring {MOST_FILES} files of {MOST_BYTES} bytes in all")
    return content


def _folder_of(letter: str) -> str:
    """Of this letter alone: the mark keeps those apart that would be written alike."""
    return f"{_safe(letter)}-{hashlib.sha256(letter.encode()).hexdigest()[:MARK]}"


def _safe(name: str) -> str:
    """A name that is no path and hides nothing."""
    return _UNSAFE.sub("_", name).lstrip(".")[-100:] or "file"


def body(text: str, media: Sequence[str]) -> list[str | Part]:
    """What a model sends: its text, its files (enclosed when the letter is sent), its links."""
    parts: list[str | Part] = [text] if text.strip() else []
    for path in media:
        is_link = path.startswith(("http://", "https://"))
        parts.append(reference(path) if is_link else file(path))
    return parts

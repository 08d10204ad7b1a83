"""What is in a letter besides text: data becomes text, files become media in a folder of ours.

A file's bytes come in the letter. Where a stranger sent only a path, it is followed below the allowed root alone.
Whatever cannot be taken is said in the text; it never stops the letter.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING

import msgspec

from ..errors import PostroomError
from ..model.codec import encode
from ..service.files import read_below

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..model.message import Message
    from ..model.parts import Part

LARGEST = 20 * 1024 * 1024  # bytes of one file
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Unpacked(msgspec.Struct, frozen=True):
    """A letter's content as a model can use it."""

    text: str
    media: tuple[str, ...]  # paths of files


def unpack(letter: Message, folder: Path, root: str) -> Unpacked:
    """The content as text, and its files below `folder`. `root`: where paths of strangers may lead."""
    pieces: list[str] = []
    media: list[str] = []
    for number, part in enumerate(letter.parts):
        if part.type == "file":
            said, path = _file(part, folder / _safe(letter.id), number, root)
            pieces.append(said)
            media += [path] if path else []
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


def _file(part: Part, folder: Path, number: int, root: str) -> tuple[str, str | None]:
    """What is said of a file, and where it lies now."""
    name = str(part.get("path") or "").replace("\\", "/").rpartition("/")[2] or "file"
    try:
        content = _bytes(part, root)
        path = folder / f"{number}-{_safe(name)}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
    except (PostroomError, OSError, ValueError) as refused:
        return f"[file {name} was not taken: {refused}]", None
    return f"[file {name}, {len(content)} bytes: {path}]", str(path)


def _bytes(part: Part, root: str) -> bytes:
    enclosed = part.get("bytes")
    if enclosed is None:
        return read_below(part["path"], root, LARGEST, "path")
    try:
        return base64.b64decode(enclosed, validate=True)
    except (TypeError, binascii.Error):
        raise ValueError("its bytes are not base64 text") from None


def _safe(name: str) -> str:
    """A name that is no path and hides nothing."""
    return _UNSAFE.sub("_", name).lstrip(".")[-100:] or "file"


def body(text: str, media: Sequence[str]) -> list[str | dict[str, str]]:
    """What a model sends: its text, its files (enclosed when the letter is sent), its links."""
    parts: list[str | dict[str, str]] = [text] if text.strip() else []
    for path in media:
        is_link = path.startswith(("http://", "https://"))
        parts.append({"type": "reference", "uri": path} if is_link else {"type": "file", "path": path})
    return parts

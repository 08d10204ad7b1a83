"""Values of the model as JSON bytes and back without loss, and the digest of a letter.

What equals its default is left out of the bytes. `digest` decides whether two letters have the same content,
which is how a repeated send is recognized.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import Unreadable
from .message import Message, Part, TaskNote, new_part

if TYPE_CHECKING:
    from collections.abc import Callable


try:  # `hashlib` loads all of OpenSSL, which no send needs
    from _blake2 import blake2b
except ImportError:  # not CPython
    from hashlib import blake2b

__all__ = [
    "USUAL",
    "blake2b",
    "convert",
    "decode_message",
    "digest",
    "encode",
    "encode_sorted",
    "note_in",
    "to_plain",
    "with_defaults",
]

T = TypeVar("T")
_DEFAULTS = {
    name: default
    for name, default in zip(
        reversed(Message.__struct_fields__), reversed(Message.__struct_defaults__), strict=False
    )
    if isinstance(default, (str, int, tuple))  # None is the same object anyway
}
# The defaults as plain JSON has them.
USUAL: dict[str, Any] = {name: [] if default == () else default for name, default in _DEFAULTS.items()}
_PENDING: str = TaskNote(id="").state
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def _to_builtin(value: Any) -> Any:
    if isinstance(value, Part):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _from_builtin(wanted: type, value: Any) -> Any:
    if wanted is Part and isinstance(value, dict):
        kind = value.pop("type", None)
        if isinstance(kind, str):
            return new_part(kind, value)
    raise ValueError(f"not a {wanted.__name__}")


encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=_to_builtin).encode  # any value of the model
encode_sorted: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=_to_builtin, order="deterministic").encode


@cache
def _message_decoder() -> msgspec.json.Decoder[Message]:
    """Return the decoder of letters, made when first needed: a process that only sends decodes none."""
    return msgspec.json.Decoder(Message, dec_hook=_from_builtin)


def decode_message(raw: bytes) -> Message:
    """Return the letter as it was accepted, or raise Unreadable."""
    try:
        return _message_decoder().decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        raise Unreadable(f"a stored letter cannot be read: {broken}") from None


def convert(value: Any, wanted: type[T]) -> T:
    """Return a value of the model from plain JSON, or raise msgspec.ValidationError, which names the field."""
    return msgspec.convert(value, wanted, dec_hook=_from_builtin)


def note_in(message: Message, key: str, wanted: type[T]) -> T | None:
    """Return a note in the `extra` of a letter; None if there is none. Callers can write anything there."""
    try:
        return convert(message.extra[key], wanted) if key in message.extra else None
    except msgspec.ValidationError:
        return None


def to_plain(value: Any, *, times: bool = False) -> Any:
    """Return a value of the model as plain JSON types. With `times`, times in it are still times."""
    return msgspec.to_builtins(value, builtin_types=(datetime,) if times else (), enc_hook=_to_builtin)


def with_defaults(message: Message) -> Message:
    """Return the letter with each value that equals its default replaced by the default object itself.

    msgspec leaves a field out only if it is the identical object.
    """
    usual: dict[str, Any] = {
        name: default for name, default in _DEFAULTS.items() if getattr(message, name) == default
    }
    task = message.task
    if task is not None and task.state == _PENDING:
        usual["task"] = replace(task, state=_PENDING)
    return replace(message, **usual)


def digest(message: Message) -> str:
    """Return a short hash of the letter's content: ids, times and keys do not count, everything else does."""
    expires = None if message.expires_at is None else _NO_TIME
    task = message.task
    if task is not None and task.deadline is not None:
        task = replace(task, deadline=_NO_TIME)
    # A repeated send gets a new id and a new time, and a span such as "in 5 min" another expiry: only whether
    # there is one counts (G3).
    bare = replace(
        message, id="", created_at=_NO_TIME, expires_at=expires, task=task, key=None, proven=False, proof=None
    )
    bare = with_defaults(bare)
    return blake2b(encode_sorted(bare), digest_size=16).hexdigest()


def token_hash(token: str) -> str:
    """Return the hash of a token, under which it is kept."""
    from hashlib import sha256  # noqa: PLC0415 - it loads OpenSSL, which no send needs

    return sha256(token.encode()).hexdigest()


def is_same_secret(left: str, right: str) -> bool:
    """Compare two secrets in a time that does not depend on their content."""
    from hmac import compare_digest  # noqa: PLC0415 - it loads OpenSSL, which no send needs

    return compare_digest(left, right)

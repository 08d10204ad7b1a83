"""The keyword arguments of the Python API, for type checkers and readers. Nothing imports it at run time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from .model.message import Priority, TaskNote

When = datetime | timedelta | float


class Fields(TypedDict, total=False):
    """The fields of a letter besides its recipient and body."""

    cc: Any
    bcc: Any
    data: Any  # any JSON; becomes a data part
    subject: str
    kind: str
    priority: Priority | str | int
    scope: str
    expires: When  # not offered after this
    at: When  # not delivered before this
    thread_tag: str
    conversation_id: str
    in_reply_to: str
    task: TaskNote | dict[str, Any]
    callback: dict[str, Any]
    context: dict[str, Any]
    attachments: Sequence[str]
    tags: Sequence[str]
    metadata: dict[str, Any]
    key: str  # a repeat with the same key sends nothing
    id: str  # only for a letter that has one already
    extra: dict[str, Any]


class RequestFields(TypedDict, total=False):
    """The fields of a request that `ask` sends, as in `Fields`."""

    data: Any
    subject: str
    priority: Priority | str | int
    scope: str
    expires: When
    thread_tag: str
    conversation_id: str
    in_reply_to: str
    callback: dict[str, Any]
    context: dict[str, Any]
    attachments: Sequence[str]
    tags: Sequence[str]
    metadata: dict[str, Any]
    key: str


class Wanted(TypedDict, total=False):
    """Conditions for the letters that a reader waits for."""

    kinds: str | Sequence[str]
    min_priority: Priority | str | int
    sender: str
    thread: str
    thread_tag: str
    tag: str
    scope: str


class Filters(Wanted, total=False):
    """Conditions for the letters that are returned or claimed."""

    since: datetime  # written at or after this time

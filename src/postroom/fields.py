"""What may be said by name: of a letter that is sent, of letters that are wanted. Only type checkers and readers
look in here; nothing is loaded from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from .model.message import Priority, TaskNote

When = datetime | timedelta | float


class Fields(TypedDict, total=False):
    """What a letter may carry besides its recipient and body."""

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
    key: str  # the same key again sends nothing twice
    id: str  # only for a letter that has one already
    extra: dict[str, Any]


class Wanted(TypedDict, total=False):
    """Which letters a reader waits for."""

    kinds: str | Sequence[str]
    min_priority: Priority | str | int
    sender: str
    thread: str
    thread_tag: str
    tag: str
    scope: str


class Filters(Wanted, total=False):
    """Which letters are wanted."""

    since: datetime  # written at or after this time

"""The keyword arguments of the Python API, for type checkers and readers. Nothing imports it at run time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from .model.message import Part, Priority, TaskNote
from .model.names import Address

AddressLike = str | Address | dict[str, Any]  # a name, or an agent, system and scope
To = AddressLike | Collection[AddressLike]
PartLike = str | Part | dict[str, Any]
Body = PartLike | Sequence[PartLike] | None
When = datetime | timedelta | float
PriorityLike = Literal["low", "normal", "high", "urgent"] | Priority | int


class RequestFields(TypedDict, total=False):
    """The fields of a request that `ask` sends, besides its recipient and body."""

    data: Any  # any JSON; becomes a data part
    subject: str
    priority: PriorityLike
    scope: str
    expires: When  # not offered after this
    thread_tag: str
    conversation_id: str
    in_reply_to: str
    callback: dict[str, Any]
    context: dict[str, Any]
    attachments: Sequence[str]
    tags: Sequence[str]
    metadata: dict[str, Any]
    key: str  # a repeat with the same key sends nothing


class Fields(RequestFields, total=False):
    """The fields of a letter besides its recipient and body."""

    cc: To
    bcc: To
    kind: str
    at: When  # not delivered before this
    task: TaskNote | dict[str, Any]
    id: str  # only for a letter that has one already
    extra: dict[str, Any]


class TemplateFields(TypedDict, total=False):
    """The fields of a template besides its name. Text may hold `{places}`."""

    body: str
    subject: str
    kind: str
    priority: PriorityLike
    tags: Sequence[str]


class Wanted(TypedDict, total=False):
    """Conditions for the letters that a reader waits for."""

    kinds: str | Sequence[str]
    min_priority: PriorityLike
    sender: str
    thread: str
    thread_tag: str
    tag: str
    scope: str


class Filters(Wanted, total=False):
    """Conditions for the letters that are returned or claimed."""

    since: datetime  # written at or after this time

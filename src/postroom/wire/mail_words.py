"""What callers of `mail/*` say, in either dialect's words, as the verbs below want it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from ..model.talk import letter_of_turn
from ..service.given import check_count, listed
from ..service.retelling import Wanted
from ..service.talks import turn_in
from .inbox_records import milliseconds
from .table import snake

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..room import Room
    from ..service.talks import View

MOST = 10_000  # rows in one answer


def conversation(said: Mapping[str, Any]) -> str:
    """Which conversation: `conversationId`, or `id` in agent-inbox's words."""
    id = said.get("conversation_id") or said.get("id")
    if not id:
        raise Invalid("is missing", field="conversation_id")
    return str(id)


def speaker(room: Room, said: Mapping[str, Any]) -> str:
    """Who it is about: as it is said, or the agent that is calling. Whether it may is asked by the verb."""
    who = named_speaker(said) or room.principal.agent
    if not who:
        raise Invalid("is missing", field="participant_id", hint="who are you?")
    return str(who)


def named_speaker(said: Mapping[str, Any]) -> str | None:
    """The same, of a caller that nothing but its words tells of."""
    return said.get("participant_id") or said.get("agent_id")


def limit_of(value: Any) -> int:
    return min(check_count(value, "limit"), MOST)


def paged(name: str, rows: Sequence[dict[str, Any]], limit: int | None) -> dict[str, Any]:
    """A page, whether there is more, and from where to go on."""
    shown, more = list(rows[:limit]), limit is not None and len(rows) > limit
    answer: dict[str, Any] = {name: shown, "hasMore": more}
    return answer | {"nextCursor": shown[-1]["id"]} if more else answer


def turns_wanted(said: Mapping[str, Any]) -> Wanted:
    """Which turns: the words of `filter`, and those of `mail/replay`."""
    words = {snake(name): value for name, value in said.items() if value is not None}
    after = words.get("after_turn_id") or words.get("from_turn_id") or words.get("cursor")
    return Wanted(
        thread=_text(words, "thread_id"),
        content_types=tuple(listed(words.get("content_types", ()), "content_types")),
        participant=_text(words, "participant_id"),
        after=_turn(after, "after_turn_id"),
        before=_turn(words.get("before_turn_id"), "before_turn_id"),
        since=_since(words),
        until=moment(words.get("before_timestamp"), "before_timestamp"),
    )


def around(view: View, said: Mapping[str, Any]) -> Wanted:
    """From one turn to another, both of them with it; or one thread."""
    words = {snake(name): value for name, value in said.items() if value is not None}
    letters = view.letters
    first, last = _turn(words.get("from_turn_id"), "scope"), _turn(words.get("to_turn_id"), "scope")
    start = 0 if first is None else letters.index(turn_in(view, first))
    end = len(letters) - 1 if last is None else letters.index(turn_in(view, last))
    return Wanted(
        thread=_text(words, "thread_id"),
        after=letters[start - 1].id if start else None,
        before=letters[end + 1].id if end + 1 < len(letters) else None,
    )


def list_filter(said: Mapping[str, Any]) -> dict[str, Any]:
    words = {snake(name): value for name, value in said.items() if value is not None}
    for name in ("status", "type"):
        if name in words:
            words[name] = listed(words[name], name)
    for name in ("created_after", "created_before"):
        words[name] = moment(words.get(name), name)
    return words


def suits(view: View, words: Mapping[str, Any]) -> bool:
    """Does a conversation pass the filter of a list?"""
    talk = view.talk
    return (
        ("status" not in words or talk.status in words["status"])
        and ("type" not in words or talk.type in words["type"])
        and ("participant_id" not in words or view.seat(words["participant_id"]) is not None)
        and ("parent_conversation_id" not in words or talk.parent == words["parent_conversation_id"])
        and (words["created_after"] is None or talk.created_at > words["created_after"])
        and (words["created_before"] is None or talk.created_at < words["created_before"])
    )


def moment(value: Any, field: str) -> datetime | None:
    """A time: milliseconds since 1970, or ISO 8601."""
    if value is None or isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    hint = f"milliseconds since 1970, such as {milliseconds(datetime(2030, 1, 1, tzinfo=UTC))}"
    raise Invalid("is not a time", field=field, hint=hint)


_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # nothing was written before


def _since(words: Mapping[str, Any]) -> datetime | None:
    """`after` is later than a time; `from` is that time, too: two turns may share it, and none is to be missed."""
    start = moment(words.get("from_timestamp"), "from_timestamp")
    if start is not None:
        return max(start, _EARLIEST) - timedelta(milliseconds=1)
    return moment(words.get("after_timestamp"), "after_timestamp")


def _text(words: Mapping[str, Any], name: str) -> str | None:
    value = words.get(name)
    if value is not None and not isinstance(value, str):
        raise Invalid("must be text", field=name)
    return value


def _turn(value: Any, field: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise Invalid("must be a turn's id", field=field)
    return None if value is None else letter_of_turn(value)

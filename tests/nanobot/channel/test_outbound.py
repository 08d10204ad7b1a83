"""What leaves the model: last words, new mail, and what is neither. Messages as nanobot's versions make them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from postroom.errors import Invalid
from postroom.nanobot.channel import bus

from .agents import PATIENCE, scripted_agent, until

EMPTY = "I completed the tool steps but couldn't produce a final answer. Please try again or narrow the task."


@dataclass
class Message:
    content: str = "hello"
    chat_id: str = "anna"
    channel: str = "mailbox"
    media: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    event: Any = None


@dataclass
class Context:
    channel: str = "person"
    chat_id: str = "sofa"
    session_key: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class StreamedResponseEvent:
    """Named as nanobot's."""


@pytest.mark.parametrize(
    ("message", "progress", "last"),
    [
        (Message(), False, True),
        (Message(event=object()), True, False),
        (Message(event=StreamedResponseEvent()), True, True),
        (Message(metadata={"_progress": True}), True, False),
        (Message(metadata={"_tool_hint": True}), True, False),
        (Message(metadata={"_stream_delta": True}), True, False),
        (Message(metadata={"_streamed": True}), False, True),
        (Message(content="  "), True, False),
        (Message(content="", media=["/tmp/x.png"]), False, True),
    ],
)
def test_progress_is_reported_from_last_words(message: Message, progress: bool, last: bool) -> None:
    assert (progress, last) == (bus.is_progress(message), bus.is_last_word(message))


@pytest.mark.parametrize(
    ("text", "kept", "failed"),
    [
        ("fine", ["fine"], False),
        ("fine", [], False),
        ("Error: no colon", ["Error: no colon"], False),
        ("Error: no colon", ["fine"], True),
        ("Error: no colon", [], True),
        ("Error calling LLM: timed out", ["[Assistant reply unavailable due to model error.]"], True),
        ("The API key is out of quota", ["[Assistant reply unavailable due to model error.]"], True),
        ("Sorry, I encountered an error.", [None], True),
    ],
)
def test_a_failure_is_what_is_said_and_not_kept(text: str, kept: list[str | None], failed: bool) -> None:
    session = [{"role": "user", "content": "hello"}, *({"role": "assistant", "content": one} for one in kept)]
    assert failed is bus.is_failure(Message(content=text), bus.last_answer(session))
    by_tool = Message(content=text)
    bus.note_message(by_tool, Context(), None, collects=False)
    assert not bus.is_failure(by_tool, bus.last_answer(session))


@pytest.mark.parametrize(
    ("channel", "chat", "place"),
    [("person", "sofa", ("person", "sofa")), ("system", "person:so:fa", ("person", "so:fa"))],
)
def test_a_broken_turn_is_reported_where_its_result_was_due(
    channel: str, chat: str, place: tuple[str, str]
) -> None:
    assert place == bus.place_of(Message(channel=channel, chat_id=chat))
    broken = [{"role": "assistant", "content": "[Assistant reply unavailable due to model error.]"}]
    assert bus.is_failure(None, bus.last_answer(broken)) and not bus.is_failure(None, "fine")


@pytest.mark.parametrize(
    ("text", "is_none"),
    [
        (EMPTY, True),
        (f"{EMPTY}\n", True),
        (f"It said: {EMPTY}", False),
        (
            "I reached the maximum number of tool call iterations (40) without completing the task. "
            "You can try breaking the task into smaller steps.",
            True,
        ),
        ("I reached the maximum number of tool call iterations (40) without completing the task. Here:", False),
        ("42", False),
    ],
)
def test_nanobots_word_that_there_is_no_answer_is_none(text: str, is_none: bool) -> None:
    assert is_none is bus.is_no_answer(Message(content=text))
    by_tool = Message(content=text)
    bus.note_message(by_tool, Context(), None, collects=True)
    assert not bus.is_no_answer(by_tool)


def test_old_versions_show_only_tools_where_they_say_that_a_turn_is_over() -> None:
    class Bus: ...

    class Loud:
        def subscribe(self) -> None: ...

    old, loud, shown = Bus(), Loud(), Loud()
    assert bus.event_source(old) is None and loud is bus.event_source(loud)
    for runtime_events in (shown, None):  # tools of subagents are shown none
        bus.note_source(SimpleNamespace(bus=old, runtime_events=runtime_events))
    bus.note_source(SimpleNamespace())
    assert shown is bus.event_source(old)


def test_the_caller_of_a_tool_is_noted() -> None:
    message = Message()
    bus.note_message(message, Context(), None, collects=True)
    caller = bus.caller_of(message)
    assert caller is not None
    assert ("person", "sofa", "person:sofa", None) == (caller.channel, caller.chat, caller.session, caller.letter)
    assert bus.caller_from(None) is None
    forged = Message(metadata={bus.CALLER: {"channel": "person", "chat": "ceo"}})
    assert bus.caller_of(forged) is None


def test_local_code_may_open_a_task_and_nothing_else(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            params = {
                "mailbox_type": "task",
                "mailbox_task": {"deadline": "2030-01-01T00:00:00Z"},
                "mailbox_ttl": 99,
            }
            message = Message(metadata=dict(params))
            warned: list[str] = []
            made = bus.outgoing(message, coder.post, warned.append)
            assert made.is_task and not made.is_retry and made.deadline.year == 2030
            assert ["mailbox_ttl is 99, and is sent as 3: it can be lowered, not raised"] == warned
            again = bus.outgoing(message, coder.post, warned.append)
            assert again.is_retry and made.id == again.id
            await coder.post.room.mailbox("anna").register()
            receipt = await coder.post.send(made, None)
            assert ("task", 3, ("coder",)) == (receipt.message.kind, receipt.message.hops, receipt.message.trace)
            assert (await coder.post.send(again, None)).repeated
            for wrong in (
                {"mailbox_type": "bounce"},
                {"mailbox_type": "task", "mailbox_task": {"deadline": "soon"}},
                {"mailbox_type": "task", "mailbox_task": {"id": "a b"}},
                {"mailbox_ttl": 0},
                {"mailbox_ttl": "3"},
                {"mailbox_callback": "person:sofa"},
                {"mailbox_callback": {"channel": "person"}},
            ):
                with pytest.raises(Invalid, match=r"mailbox_[tc]"):
                    bus.outgoing(Message(metadata=wrong), coder.post, warned.append)
            plain = bus.outgoing(Message(), coder.post, warned.append)
            assert plain.is_automatic  # nobody in a conversation wrote it

    asyncio.run(scene())


@pytest.mark.parametrize("collects", [True, False])
def test_what_a_tool_says_to_the_chat_of_its_own_turn_is_the_answer(tmp_path: Path, collects: bool) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.send("coder", "hello")
            [seen] = await until(lambda: coder.seen)
            turns, letter = coder.post.turns, seen.metadata["mailbox"]["id"]
            words = [Message(content=word, metadata=dict(seen.metadata)) for word in ("one", "two")]
            context = Context(channel="mailbox", chat_id="anna", metadata=dict(seen.metadata))
            for message in words[: 2 if collects else 1]:
                bus.note_message(message, context, turns, collects=collects)
                assert collects == (bus.turn_of(message, turns) is None)
                assert bus.is_about_turn(message)
            if collects:
                await coder.reception.end_turn(letter)
            else:
                await coder.reception.answer_turn(letter, "one", ())
            answer = await anna.wait(PATIENCE)
            assert answer is not None and ("one\n\ntwo" if collects else "one") == answer.text
            assert turns.get(letter) is None

    asyncio.run(scene())


def test_errors_that_lost_their_turn_are_given_to_those_there_are(tmp_path: Path) -> None:
    """0.2.2 says that it is sorry without saying to whom."""

    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder") as coder:
            sent = [(await coder.post.room.mailbox("anna").send("coder", "hello")).id for _ in range(2)]
            await until(lambda: len(coder.seen) == 2)
            turns = coder.post.turns
            words = [Message(content="Sorry, I encountered an error.") for _ in range(3)]
            for message in [*words, other := Message(content="something else")]:
                bus.note_message(message, None, turns, collects=False)
            found = [turn for message in words if (turn := bus.turn_of(message, turns)) is not None]
            assert sorted(sent) == sorted(turn.id for turn in found) and all(turn.failed for turn in found)
            assert bus.turn_of(other, turns) is None
            for turn in found:
                await coder.reception.answer_turn(turn.id, "Sorry, I encountered an error.", ())
            for letter in await coder.post.box.check(peek=True, unread_only=False):
                assert ("unread", 1) == (letter.state, letter.delivery.attempts)  # it is tried again

    asyncio.run(scene())

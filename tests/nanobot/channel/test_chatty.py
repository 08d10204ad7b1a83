"""Agents that write to each other by themselves stop (G11), and mail over the pace waits. Without nanobot."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import postroom
from postroom.aio import AsyncWork
from postroom.core.inbox import received
from postroom.model.delivery import State
from postroom.nanobot.channel import auto_reply
from postroom.nanobot.channel.bus import Inbound
from postroom.nanobot.channel.post import ToolCaller

from .agents import PATIENCE, ScriptedAgent, run, scripted_agent, until, use

MOST = 10  # of automatic mails to one peer in one conversation, by default
RUNAWAY = 100  # turns, after which a conversation counts as endless
QUIET = 0.4  # seconds in which nothing more must come


@asynccontextmanager
async def chatty(at: ScriptedAgent, peer: str, mails: int, tool: str) -> AsyncIterator[list[str]]:
    """A model that writes so many mails to `peer` in each turn; gives what the tool said."""
    message: list[str] = []

    async def answer_all() -> None:
        done = 0
        while done < RUNAWAY:
            await until_or_ever(at, done)
            inbound = at.seen[done]
            done += 1
            message.extend([await use(at, tool, inbound, to=peer, text="hello") for _ in range(mails)])
            await at.answer(inbound, "thank you")

    working = asyncio.create_task(answer_all())
    try:
        yield message
    finally:
        working.cancel()
        await asyncio.wait([working])
        if not working.cancelled():
            working.result()


async def until_or_ever(at: ScriptedAgent, seen: int) -> None:
    while len(at.seen) <= seen:
        await asyncio.sleep(0.01)


async def turns_at_rest(*desks: ScriptedAgent) -> list[int]:
    """How many turns each had, once their letters are settled and nothing more happens."""
    while True:
        before = [len(one.seen) for one in desks]
        assert max(before) < RUNAWAY, f"it goes on for ever: {before}"
        await asyncio.sleep(QUIET)
        if before == [len(one.seen) for one in desks] and not any(map(open_letters, desks)):
            return before


def open_letters(at: ScriptedAgent) -> int:
    """How many letters the agent has not settled: on a busy machine a step may take longer than QUIET."""
    counted = at.post.mailbox.stats()
    return counted.total_unread + counted.seen + counted.claimed


def notices(at: ScriptedAgent) -> list[Inbound]:
    return [inbound for inbound in at.seen if "went on by themselves for too long" in inbound.content]


def tells(at: ScriptedAgent) -> list[str]:
    """What the person at this desk is told without a turn of the model, from now on."""
    results: list[str] = []

    async def tell(caller: ToolCaller, text: str) -> None:
        results.append(f"{caller.place} {text}")

    at.post.notify_person = tell
    return results


async def say_hello(folder: Path, mails: int, tool: str) -> None:
    """A person asks for a greeting; the models go on by themselves, and stop. A person's word lets them go on."""
    async with (
        scripted_agent(folder, "boss") as boss,
        scripted_agent(folder, "coder", lambda _: "hello to you!") as coder,
    ):
        result = tells(boss)
        async with chatty(boss, "coder", mails, tool) as message:
            for _ in range(mails):
                assert "coder" in await use(boss, tool, to="coder", text="hello")
            turns = await turns_at_rest(boss, coder)
            most = mails + MOST
            assert max(turns) <= most + 1, f"it goes on for too long: {turns}"  # one of coder's is the notice
            assert 1 == len(result) and result[0].startswith("person:sofa [Mailbox] boss and coder went on")
            assert 1 == len(notices(coder)) and "No answer is expected" in notices(coder)[0].content
            assert any(line.startswith("Error:") and "ask the person first" in line for line in message)
            boss.post.person_wrote("person:sofa")
            assert "coder" in await use(boss, tool, to="coder", text="go on")
            again = await turns_at_rest(boss, coder)
            assert turns[0] < again[0] <= turns[0] + 1 + MOST and 2 == len(result), again


@pytest.mark.parametrize(
    ("mails", "tool"), [(1, "mail_send"), (2, "mail_send"), (5, "mail_send"), (2, "mail_task")]
)
def test_however_many_mails_a_turn_writes_the_agents_stop(tmp_path: Path, mails: int, tool: str) -> None:
    run(lambda: say_hello(tmp_path, mails, tool))


def test_a_bound_on_depth_alone_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the test above: only the rounds that each mail brings along are counted."""

    def by_depth(
        self: auto_reply.Automatic, place: str, peer: str, rounds: int, _now: float
    ) -> auto_reply.SendBlock | None:
        return auto_reply.SendBlock("too deep", is_first=self.is_first(peer, place)) if rounds >= MOST else None

    monkeypatch.setattr(auto_reply.Automatic, "stop", by_depth)
    with pytest.raises(AssertionError, match="it goes on for"):
        run(lambda: say_hello(tmp_path, 2, "mail_send"))


def test_mail_of_a_persons_turn_with_a_report_merged_into_it_is_counted(tmp_path: Path) -> None:
    """A report that nanobot 0.3.5 gives to a running turn of a person, whose caller names no letter, counts."""

    async def scene() -> None:
        async with (
            scripted_agent(tmp_path, "boss") as boss,
            scripted_agent(tmp_path, "coder", lambda _: "hello to you!") as coder,
        ):
            await use(boss, "mail_send", to="coder", text="hello")
            said = ""
            for turn in range(RUNAWAY):
                await until_or_ever(boss, turn)
                said = await use(boss, "mail_send", to="coder", text="hello again")
                await boss.answer(boss.seen[turn], "thank you")
                if said.startswith("Error:"):
                    break
            assert "ask the person first" in said and len(boss.seen) <= MOST + 1
            assert max(await turns_at_rest(boss, coder)) <= MOST + 2

    run(scene)


@pytest.mark.parametrize("mails", [1, 2, 5])
def test_in_a_thread_of_mail_they_stop_too_and_the_human_is_notified_by_letter(tmp_path: Path, mails: int) -> None:
    """Anna asks boss, who asks coder, and goes on in the session of anna's thread."""

    async def scene() -> None:
        async with (
            scripted_agent(tmp_path, "boss") as boss,
            scripted_agent(tmp_path, "coder", lambda _: "hello to you!") as coder,
            chatty(boss, "coder", mails, "mail_send"),
        ):
            await boss.post.room.mailbox("anna").send("boss", "say hello to coder")
            turns = await turns_at_rest(boss, coder)
            assert max(turns) <= MOST + 1 and 1 == len(notices(coder)), turns
            [letter] = await boss.post.room.mailbox("human").check()
            assert "boss and coder went on by themselves for too long" in letter.text
            await boss.post.room.mailbox("human").send("boss", "you may go on")
            again = await turns_at_rest(boss, coder)
            assert turns[1] < again[1]

    run(scene)


def test_over_all_conversations_they_stop_after_so_many_mails_an_hour(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            scripted_agent(tmp_path, "boss", automaticMails=1000, automaticPerHour=12) as boss,
            scripted_agent(tmp_path, "coder", lambda _: "hello to you!") as coder,
            chatty(boss, "coder", 2, "mail_send"),
        ):
            result = tells(boss)
            for _ in range(3):
                await boss.post.room.mailbox("anna").send("boss", "say hello to coder")
            turns = await turns_at_rest(boss, coder)
            assert (3 + 12, 12 + 1) == (turns[0], turns[1]) and [] == result
            assert 1 == len(notices(coder)) and "within an hour" in notices(coder)[0].content

    run(scene)


def test_a_program_that_answers_every_answer_is_slowed_down_until_a_person_writes(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "you are welcome", automaticPerHour=3) as coder:
            anna = coder.post.room.mailbox("anna")
            await anna.send("coder", "thank you")
            for _ in range(3):
                answer = await anna.claim(timeout=PATIENCE)
                assert answer is not None
                await answer.reply("thank you too")
                await answer.ack()
            answer = await anna.claim(timeout=PATIENCE)
            assert answer is not None
            waits = await anna.reply(answer.id, "and thank you once more")
            await answer.ack()
            notice = await anna.claim(timeout=PATIENCE)
            assert notice is not None and "3 replies of anna were answered within an hour" in notice.text
            await asyncio.sleep(QUIET)
            delivery = received(coder.post.core, "coder", waits.id).delivery
            assert (4, State.UNREAD, 0) == (len(coder.seen), delivery.state, delivery.attempts)
            await anna.send("coder", "something new")  # in another thread
            await until(lambda: len(coder.seen) == 5)
            coder.post.person_wrote("person:sofa")
            await until(lambda: len(coder.seen) == 6)
            assert "once more" in coder.seen[-1].content

    run(scene)


def numbers_of(at: ScriptedAgent) -> list[int]:
    return [int(found[1]) for inbound in at.seen if (found := re.search(r"mail (\d+)", inbound.content))]


async def hundred_letters(folder: Path) -> None:
    """All are answered, in their order, and none has a failed attempt."""
    with postroom.open(f"files:{folder / 'mailboxes'}?layout=nanobot") as room:
        sent = [room.mailbox("anna").send("coder", f"mail {number}").id for number in range(100)]
        room.mailbox("bert").send("coder", "and me?")
    async with scripted_agent(folder, "coder", lambda _: "fine", pace=auto_reply.Pace(27, 0.5)) as coder:
        anna = coder.post.room.mailbox("anna")
        await until(lambda: len(coder.seen) == 101 or numbers_of(coder) != list(range(len(numbers_of(coder)))))
        assert list(range(100)) == numbers_of(coder), "they changed places"
        await until(
            lambda: all(received(coder.post.core, "coder", id).delivery.state is State.DONE for id in sent)
        )
        assert not any(received(coder.post.core, "coder", id).delivery.attempts for id in sent)
        assert {"coder"} == {letter.sender for letter in await anna.check(limit=200)}  # no bounces


def test_a_hundred_letters_of_one_sender_are_all_answered_in_their_order(tmp_path: Path) -> None:
    run(lambda: hundred_letters(tmp_path))


def test_letters_over_the_pace_that_change_places_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of the test above: waiting counts as failing, so later letters overtake the one that failed."""

    async def fail(self: AsyncWork) -> None:
        await self.fail("over the pace")

    monkeypatch.setattr(AsyncWork, "release", fail)
    with pytest.raises(AssertionError, match="they changed places"):
        run(lambda: hundred_letters(tmp_path))


def test_a_burst_of_forty_is_within_the_default_pace(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_agent(tmp_path, "coder", lambda _: "fine") as coder:
            anna = coder.post.room.mailbox("anna")
            for number in range(40):
                await anna.send("coder", f"mail {number}")
            await until(lambda: len(coder.seen) == 40)  # in less than 30 s
            assert list(range(40)) == numbers_of(coder)

    run(scene)


def test_a_pace_is_counted_for_each_peer_in_its_window() -> None:
    pace = auto_reply.Pace(2, 10.0)
    assert [True, True, False] == [pace.allows("anna", now) for now in (0.0, 1.0, 5.0)]
    assert pace.allows("bert", 5.0) and {"anna"} == pace.waiting(5.0)
    assert 5.0 == pace.wait("ANNA", 5.0) and not pace.waiting(10.0)
    assert pace.allows("anna", 10.0) and not pace.allows("anna", 10.5) and pace.allows("anna", 11.0)


def test_the_word_of_a_person_in_one_chat_lets_only_that_one_go_on() -> None:
    counted = auto_reply.Automatic(2, 100)
    for place in ("person:a", "person:b"):
        assert [None, None] == [counted.stop(place, "coder", 0, 0.0) for _ in range(2)]
        stop = counted.stop(place, "Coder", 0, 0.0)
        assert stop is not None and stop.is_first
    counted.person_wrote("person:a")
    assert counted.stop("person:a", "coder", 0, 0.0) is None
    stop = counted.stop("person:b", "coder", 0, 0.0)
    assert stop is not None and not stop.is_first
    counted.person_wrote()
    assert counted.stop("person:b", "coder", 0, 0.0) is None
    deep = counted.stop("person:b", "coder", 2, 0.0)
    assert deep is not None and deep.is_first

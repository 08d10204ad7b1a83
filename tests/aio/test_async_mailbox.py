"""The async face does what the sync one does, waits without threads, and loses nothing to cancellation."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import aio
from postroom.store import notification
from postroom.store.notification import ProcessNotifier

PATIENCE = 60.0  # seconds; a bound, not a pace
STORES = ("memory", "sqlite")
Scene = Callable[[aio.AsyncRoom], Coroutine[Any, Any, None]]


@pytest.fixture(params=STORES)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scene], None]:
    """Run a scene in a fresh room, with patience."""
    address = "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/room.db"

    def run(scene: Scene) -> None:
        async def bounded() -> None:
            async with aio.open(address) as room, asyncio.timeout(PATIENCE):
                await scene(room)

        asyncio.run(bounded())

    return run


async def until_listening(room: aio.AsyncRoom, tasks: int) -> None:
    while sum(map(len, room._watcher._listeners.values())) < tasks:
        await asyncio.sleep(0)


def test_a_letter_sent_is_waited_for_read_and_answered(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        coder, researcher = room.mailbox("coder"), room.mailbox("researcher")
        waiting = asyncio.create_task(researcher.wait(timeout=PATIENCE))
        await until_listening(room, 1)
        sent = await coder.send("researcher", "Which sort is stable?", subject="Sorting", priority="high")
        letter = await waiting
        assert letter is not None
        assert ("Which sort is stable?", "coder", sent.id) == (letter.text, letter.sender, letter.thread)
        await letter.reply("merge sort")
        work = await coder.claim(lease=60, timeout=PATIENCE)
        assert work is not None
        async with work:
            await work.ack_and_reply("thanks")
        assert work.is_settled and work.state is postroom.State.DONE
        assert ["Sorting", "Re: Sorting", "Re: Sorting"] == [m.subject for m in await coder.thread(sent.id)]

    play(scene)


def test_waiting_and_claiming_give_nothing_when_the_time_is_up(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        box = room.mailbox("idle")
        assert await box.wait(timeout=0.01) is None
        assert await box.wait(timeout=0) is None
        assert await box.claim() is None
        assert await box.claim(timeout=0.01) is None
        assert [] == await box.claim(3)

    play(scene)


def test_hundreds_of_tasks_wait_at_once_and_hold_no_thread(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        waiting = [asyncio.create_task(room.mailbox(f"agent{i}").wait(timeout=PATIENCE)) for i in range(200)]
        await until_listening(room, 200)
        assert threading.active_count() <= aio.THREADS + 2
        drafts = [postroom.draft(f"agent{i}", str(i)) for i in range(200)]
        await room.mailbox("boss").send_many(drafts)
        letters = await asyncio.gather(*waiting)
        assert [str(i) for i in range(200)] == [letter.text for letter in letters if letter]

    play(scene)


def test_a_room_waits_for_several_mailboxes(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        waiting = asyncio.create_task(room.wait(["a", "b"], timeout=PATIENCE))
        await until_listening(room, 2)
        await room.mailbox("c").send("b", "for b")
        letter = await waiting
        assert letter is not None and "b" == letter.delivery.mailbox

    play(scene)


def test_a_worker_loop_acknowledges_only_what_was_settled(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        await room.mailbox("boss").send_many([postroom.draft("worker", str(i)) for i in range(5)])
        worker = room.mailbox("worker")
        assert ["0", "1", "2", "3", "4"] == [work.text async for work in worker.work(batch=2, timeout=0)]
        assert [0] * 5 == [letter.delivery.attempts for letter in await worker.check(peek=True)]
        async for work in worker.work(batch=2, timeout=0):
            async with work:
                pass
        assert [] == await worker.check(unread_only=False)

    play(scene)


def test_numbers_and_traces_are_awaited(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        boss, worker = room.mailbox("boss"), room.mailbox("worker")
        sent = await boss.send("worker", "x")
        assert 1 == (await worker.stats()).total_unread
        assert ["worker"] == [stop.mailbox for stop in (await boss.trace(sent.id)).stops]
        assert 1 == (await room.run(room.room.stats)).letters

    play(scene)


def test_a_worker_loop_left_early_gives_back_the_rest(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        await room.mailbox("boss").send_many([postroom.draft("worker", str(i)) for i in range(3)])
        worker = room.mailbox("worker")
        loop = worker.work(batch=3)
        assert "0" == (await anext(loop)).text
        await loop.aclose()
        assert 3 == (await worker.counts())["total"]

    play(scene)


def test_an_error_in_the_block_fails_the_work_and_counts_the_try(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        await room.mailbox("boss").send("worker", "hard")
        work = await room.mailbox("worker").claim()
        assert work is not None
        with pytest.raises(ValueError, match="too hard"):
            async with work:
                raise ValueError("too hard")
        again = (await room.mailbox("worker").check(peek=True))[0]
        assert (1, "ValueError: too hard") == (again.delivery.attempts, again.delivery.reason)

    play(scene)


def test_what_was_claimed_for_a_cancelled_task_is_given_back(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        worker = room.mailbox("worker")
        waiting = asyncio.create_task(worker.claim(timeout=PATIENCE))
        await until_listening(room, 1)
        await room.mailbox("boss").send("worker", "now")
        while not waiting.done() and not room.room.core.store.find(claimed("worker")):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        if waiting.cancelled():
            assert 1 == (await worker.counts())["total"]
        else:  # it was quicker than the cancellation, and has the letter
            assert waiting.result() is not None

    play(scene)


def claimed(mailbox: str) -> Any:
    from postroom.model.query import Query

    return Query(mailbox=mailbox, states=(postroom.State.CLAIMED,))


def test_every_other_verb_reaches_the_same_room(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        boss, worker = room.mailbox("boss"), room.mailbox("worker")
        await boss.register(scopes=["team"])
        await worker.register(scopes=["team"], capabilities=["sort"])
        assert "worker" == (await worker.heartbeat(active=True)).card.id
        assert ["worker"] == [agent.card.id for agent in await room.agents(capability="sort")]
        await boss.broadcast("team", "all hands")
        await boss.handoff("worker", postroom.Handoff(work_completed="half of it"), subject="Yours")
        first, second = await worker.check()
        assert ("all hands", "handoff") == (first.text, second.kind)
        assert "fences" in first.to_markdown() and "no unread" in await worker.digest()
        await first.ack()
        await second.forward("helper", "can you?")
        reply = await worker.reply(second.id, "on it", to_all=True)
        assert "on it" == (await boss.read(reply.id)).text
        await boss.forward(reply.id, "auditor", "for the file")
        await second.reject("not mine after all")
        assert [second.id] == [letter.id for letter in await worker.dead()]
        revived = await worker.revive(second.id)
        assert [postroom.State.UNREAD] == [letter.state for letter in revived]
        work = await worker.claim()
        assert work is not None
        await work.renew(120)
        await work.fail("no", retry=False)
        batch = await room.mailbox("helper").claim(1)
        async with batch:
            await batch.renew()
        again = await room.mailbox("auditor").claim(1)
        await again[0].ack_and_send([postroom.draft("boss", "filed")])
        await again.ack()

    play(scene)


def test_threads_conversations_and_the_rest_are_awaited_too(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        boss, worker = room.mailbox("boss"), room.mailbox("worker")
        sent = await boss.send("worker", "plan", thread_tag="q3")
        letter = await worker.wait(timeout=PATIENCE, thread=sent.thread)
        assert letter is not None
        reply = await letter.reply("done")
        assert [sent.id, reply.id] == [m.id for m in await boss.reply_chain(reply.id)]
        assert [sent.id, reply.id] == [m.id for m in await boss.tagged("q3")]
        (thread,) = await boss.threads()
        (conversation,) = await boss.conversations()
        assert (2, 2) == (thread.count, (await boss.conversation(conversation.id)).turns)
        assert ["boss", "worker"] == [turn.participant for turn in await boss.turns(conversation.id)]
        assert letter.cursor.number < room.room.cursor().number
        await worker.register()
        assert "worker" == (await room.agent("worker")).card.id
        assert (await worker.leave()).presence.status == "offline"
        await letter.reject("no")
        assert 1 == await worker.purge(letter.id)
        batch = await boss.claim(2)
        assert 2 == len(batch.unsettled)
        await batch.release()

    play(scene)


def test_without_inotify_waiting_still_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(notification, "open_inotify", lambda: None)

    async def scene() -> None:
        async with aio.open(f"sqlite:{tmp_path}/room.db") as room, asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(room.mailbox("b").wait(timeout=PATIENCE))
            await until_listening(room, 1)
            await room.mailbox("a").send("b", "hello")
            letter = await waiting
            assert letter is not None and "hello" == letter.text

    asyncio.run(scene())


def test_readers_poll_while_no_further_watch_is_possible_and_later_are_notified_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hang = ProcessNotifier.create_signal

    def hang_no_more(self: ProcessNotifier, mailbox: str) -> str:
        if mailbox == "c":
            raise OSError(errno.ENOSPC, "no more watches")
        return hang(self, mailbox)

    async def wait_and_send(room: aio.AsyncRoom, *names: str) -> None:
        waiting = [asyncio.create_task(room.mailbox(name).wait(timeout=9)) for name in names]
        for number in range(len(names)):
            await until_listening(room, number + 1)
        for name, task in zip(names, waiting, strict=True):
            await room.mailbox("a").send(name, f"to {name}")
            letter = await task
            assert letter is not None and f"to {name}" == letter.text

    async def scene() -> None:
        async with aio.open(f"sqlite:{tmp_path}/room.db") as room, asyncio.timeout(10):
            with monkeypatch.context() as full:
                full.setattr(ProcessNotifier, "create_signal", hang_no_more)
                await wait_and_send(room, "b", "c", "d")
            assert room._watcher._watch is None
            await wait_and_send(room, "c")
            assert isinstance(room._watcher._watch, notification.InotifyWatch)

    asyncio.run(scene())


def test_a_room_may_be_used_in_one_event_loop_after_another(tmp_path: Path) -> None:
    room = aio.open(tmp_path / "room.db")

    async def scene() -> None:
        waiting = asyncio.create_task(room.mailbox("b").wait(timeout=PATIENCE))
        await until_listening(room, 1)
        await room.mailbox("a").send("b", "hello")
        async with asyncio.timeout(5):
            letter = await waiting
        assert letter is not None
        await letter.ack()

    asyncio.run(scene())
    asyncio.run(scene())
    asyncio.run(room.close())


def test_a_waiter_gets_an_error_when_the_room_is_closed(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        waiting = asyncio.create_task(room.mailbox("b").wait(timeout=PATIENCE))
        await until_listening(room, 1)
        await room.close()
        with pytest.raises(postroom.BadStore, match="closed"):
            await waiting

    play(scene)


def test_two_spellings_of_a_name_are_both_notified(tmp_path: Path) -> None:
    async def scene() -> None:
        async with aio.open(tmp_path / "room.db") as room, asyncio.timeout(9):
            first = asyncio.create_task(room.mailbox("coder").wait(timeout=PATIENCE))
            await until_listening(room, 1)
            second = asyncio.create_task(room.mailbox("Coder").wait(timeout=PATIENCE))
            await until_listening(room, 2)
            await room.mailbox("a").send("coder", "hello")
            letter = await first
            assert letter is not None
            with pytest.raises(postroom.LookAlike):
                await second

    asyncio.run(scene())


def test_a_task_lives_as_it_does_in_the_sync_face(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        boss, coder = room.mailbox("boss"), room.mailbox("coder")
        sent = await boss.give_task("coder", "Sort it", deadline=60, session={"chat": 1}, subject="Rows")
        work = await coder.claim()
        assert work is not None
        theirs = await coder.task(work)
        await theirs.accept(ack=False)
        assert not work.is_settled
        await theirs.start()
        await theirs.ask("Which order?")
        ours = await boss.task(sent.id)
        assert (ours.state, ours.session, theirs.session) == ("input_required", {"chat": 1}, None)
        await ours.answer("Ascending")
        assert await theirs.refresh() == "working"
        await theirs.complete("Sorted")
        assert work.state is postroom.State.DONE and theirs.is_final
        assert [m.text for m in await ours.letters()][-1] == "Sorted"
        assert [task.state for task in await boss.tasks("given", states="completed")] == ["completed"]
        assert repr(theirs) == f"<AsyncTask {sent.id} from boss to coder 'Rows' (completed)>"

    play(scene)


def test_every_other_step_of_a_task_can_be_awaited(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        boss, coder = room.mailbox("boss"), room.mailbox("coder")
        ids = [(await boss.give_task("coder", str(n))).id for n in range(4)]
        refused, failed, canceled, unfit = [await coder.task(id) for id in ids]
        await refused.reject("no time")
        await failed.accept()
        await failed.fail("broken")
        await canceled.accept()
        await (await boss.task(ids[2])).cancel("never mind")
        assert not await unfit.admit(lambda *_: "not mine")
        found = {task.id: (task.state, task.reason) for task in await boss.tasks()}
        assert found == {
            ids[0]: ("rejected", "no time"),
            ids[1]: ("failed", "broken"),
            ids[2]: ("canceled", "never mind"),
            ids[3]: ("rejected", "not mine"),
        }
        assert ["boss", "coder"] == [agent.card.id for agent in await room.agents(gone=True)]

    play(scene)


def test_a_claim_is_found_again_by_its_token(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        await room.mailbox("ann").send("bob", "x")
        work = await room.mailbox("bob").claim()
        assert work and work.delivery.lease
        async with await room.mailbox("bob").held(work.id, work.delivery.lease.token) as again:
            assert again.text == "x"
        assert await room.mailbox("bob").check(unread_only=False) == []

    play(scene)


def test_any_number_of_letters_is_settled_in_one_commit(play: Callable[[Scene], None]) -> None:
    async def scene(room: aio.AsyncRoom) -> None:
        ann, bob = room.mailbox("ann"), room.mailbox("bob")
        await ann.send_many([postroom.draft("bob", str(n)) for n in range(7)])
        first, second, *works = await bob.claim(7, lease=60)
        await bob.renew(works, 600)
        await bob.release(works[:1])
        await bob.fail(works[1:2], "not now")
        await bob.reject(works[2:3], "never")
        await bob.ack(works[3:4])
        receipts = await bob.ack_and_send([first, second], [postroom.draft("ann", "done")])
        assert [len(receipts), *(work.state for work in (first, second, *works))] == [
            1, "done", "done", "unread", "unread", "dead", "done", "claimed",
        ]  # fmt: skip
        for nothing in (None, "m-1", ["m-1"]):
            with pytest.raises(postroom.Invalid):
                await bob.ack(nothing)  # type: ignore[arg-type] # anything may come
        batch = await bob.claim(1)
        await batch.fail("broken", retry=False)
        assert [work.state for work in batch] == ["dead"]
        letter = await bob.read((await ann.send("bob", "?")).id)
        await letter.ack_and_reply("!")
        assert letter.state is postroom.State.DONE

    play(scene)

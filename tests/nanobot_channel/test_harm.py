"""Letters made to do harm, and words that cannot be mailed: each is its own trouble, and nobody else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from postroom.model.delivery import State
from postroom.nanobot_channel.reception import Inbound
from postroom.service.reading import received

from .office import PATIENCE, desk, run, until


def drop(folder: Path, agent: str, name: str, **mail: Any) -> None:
    """A file of a stranger, past the door."""
    path = folder / "mailboxes" / agent / "inbox" / f"{name}.msg.json"
    path.write_text(json.dumps(mail), encoding="utf-8")


def test_a_part_that_lacks_its_fields_is_shown_as_it_is(tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path, "coder") as coder:
            parts = [{"type": kind} for kind in ("reference", "text", "data", "file", "event")]
            drop(tmp_path, "coder", "1_stranger", **{"from": "stranger", "content": {"parts": parts}})
            [seen] = await until(lambda: coder.seen)
            assert '{"type":"reference"}' in seen.content

    run(scene)


def test_a_letter_that_cannot_be_handed_over_costs_itself_a_try_and_the_channel_goes_on(tmp_path: Path) -> None:
    def says(inbound: Inbound) -> str:
        if "poison" in inbound.content:
            raise ValueError("not for me")
        return "fine"

    async def scene() -> None:
        async with desk(tmp_path, "coder", says) as coder:
            anna = coder.post.room.mailbox("anna")
            bad = await anna.send("coder", "poison")
            behind = await anna.send("coder", "hello", in_reply_to=bad.id)
            answer = await anna.wait(PATIENCE)
            assert answer is not None and ("fine", behind.id) == (answer.text, answer.message.in_reply_to)
            delivery = received(coder.post.office, "coder", bad.id).delivery
            assert (State.UNREAD, 1) == (delivery.state, delivery.attempts)
            assert "not for me" in str(delivery.reason) and "not for me" in str(coder.told.lines)
            assert coder.post.turns.get(bad.id) is None

    run(scene)

"""Webhooks: set by the operator alone, with a secret that never leaves the room."""

from __future__ import annotations

import json

import pytest
from msgspec import Struct

from postroom import Room
from postroom.core import transfer, webhooks
from postroom.core.authorize import OWNER, agent_principal
from postroom.core.verb import Verb, perform
from postroom.errors import Invalid, Missing, NotAllowed
from postroom.formats.plain import plain
from postroom.model.codec import to_plain
from postroom.model.message import Priority
from postroom.model.record import WEBHOOK
from postroom.settings import Settings
from postroom.store.sqlite.memory import MemoryStore
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory

URL = "https://hooks.example.com/postroom"


class Made(Struct):
    secret: str
    id: str


def made(room: Room, mailbox: str = "human", **message: object) -> Made:
    request = webhooks.AddWebhook(url=URL, mailbox=mailbox, **message)  # type: ignore[arg-type]
    webhook = perform(room.core, OWNER, request)
    return Made(webhook.secret, webhook.id)


def test_without_a_webhook_there_is_none(room: Room) -> None:
    assert [] == perform(room.core, OWNER, webhooks.ListWebhooks())


def test_a_webhook_is_kept_with_all_its_fields(room: Room) -> None:
    one = made(room, "ceo", min_priority=Priority.HIGH, allow_private=True)
    [kept] = perform(room.core, OWNER, webhooks.ListWebhooks())
    assert (one.id, URL, "human", Priority.HIGH, True) == (
        kept.id, kept.url, kept.mailbox, kept.min_priority, kept.allow_private)  # fmt: skip
    assert kept.is_on and f"webhook:{one.id}" == kept.way
    assert one.secret == kept.secret and one.secret.startswith("whsec_") and len(one.secret) == 50


def test_each_has_a_secret_of_its_own(room: Room) -> None:
    assert made(room).secret != made(room).secret


def test_what_is_shown_or_logged_holds_no_secret(room: Room) -> None:
    one = made(room)
    webhook = perform(room.core, OWNER, webhooks.RotateWebhook(id=one.id))
    changed = webhook.secret
    for result in (str(plain(webhook)), repr(webhook), str(webhook)):
        assert one.secret not in result and changed not in result


def test_a_new_secret_signs_beside_the_old_one_for_a_day(room: Room, clock: FakeClock) -> None:
    one = made(room)
    webhook = perform(room.core, OWNER, webhooks.RotateWebhook(id=one.id))
    fresh = webhook.secret
    assert [fresh, one.secret] == webhook.secrets(clock.wall)
    clock.advance(24 * 3600)
    assert [fresh] == webhook.secrets(clock.wall)


def test_a_secret_that_leaked_ends_when_it_is_rotated_twice(room: Room, clock: FakeClock) -> None:
    one = made(room)
    perform(room.core, OWNER, webhooks.RotateWebhook(id=one.id))
    webhook = perform(room.core, OWNER, webhooks.RotateWebhook(id=one.id))
    assert one.secret not in webhook.secrets(clock.wall)


def test_one_that_is_off_says_since_when_and_why_until_it_is_on_again(room: Room, clock: FakeClock) -> None:
    one, since = made(room), clock.wall
    perform(room.core, OWNER, webhooks.SwitchWebhook(id=one.id, off="it answered 410 Gone"))
    clock.advance(60)
    perform(room.core, OWNER, webhooks.SwitchWebhook(id=one.id, off="again"))
    off = perform(room.core, OWNER, webhooks.GetWebhook(id=one.id))
    assert (False, since, "it answered 410 Gone") == (off.is_on, off.off_at, off.note)
    on = perform(room.core, OWNER, webhooks.SwitchWebhook(id=one.id))
    assert (True, "") == (on.is_on, on.note)


def test_who_is_called_otherwise_keeps_its_webhooks(room: Room) -> None:
    one = made(room, "coder")
    room.mailbox("coder").register()
    rename(room, "coder", "builder")
    assert "builder" == perform(room.core, OWNER, webhooks.GetWebhook(id=one.id)).mailbox
    assert "builder" == perform(room.core, OWNER, webhooks.GetWebhook(id=made(room, "coder").id)).mailbox


def test_it_lasts(factory: RoomFactory) -> None:
    one = made(factory.room())
    factory.reopen()
    if factory.kind.lasts:
        assert one.secret == perform(factory.room().core, OWNER, webhooks.GetWebhook(id=one.id)).secret


def test_what_is_removed_is_gone(room: Room) -> None:
    one = made(room)
    perform(room.core, OWNER, webhooks.RemoveWebhook(id=one.id))
    assert [] == perform(room.core, OWNER, webhooks.ListWebhooks())
    for call in (webhooks.GetWebhook, webhooks.RemoveWebhook, webhooks.RotateWebhook, webhooks.SwitchWebhook):
        for id in (one.id, "", "../x", "x" * 99):
            request: Verb = call(id=id)
            with pytest.raises(Missing) as missing:
                perform(room.core, OWNER, request)
            assert "id" == missing.value.field


@pytest.mark.parametrize(("url", "mailbox", "field"), [
    ("http://hooks.example.com/", "human", "url"),
    ("https://127.0.0.1/", "human", "url"),
    (f"{URL}#x", "human", "url"),
    (URL, "../human", "for"),
    (URL, "ann@paris", "for"),
])  # fmt: skip
def test_what_may_not_be_called_is_not_kept(room: Room, url: str, mailbox: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        perform(room.core, OWNER, webhooks.AddWebhook(url=url, mailbox=mailbox))
    assert field == refused.value.field and [] == perform(room.core, OWNER, webhooks.ListWebhooks())


def test_there_is_an_end_to_them(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MOST", 2)
    made(room)
    made(room)
    with pytest.raises(Invalid, match="webhooks remove"):
        made(room)


def test_only_an_operator_says_who_is_called(room: Room) -> None:
    agent, core, one = agent_principal("human"), room.core, made(room)
    for call in (
        lambda: perform(core, agent, webhooks.AddWebhook(url=URL, mailbox="human")),
        lambda: perform(core, agent, webhooks.ListWebhooks()),
        lambda: perform(core, agent, webhooks.GetWebhook(id=one.id)),
        lambda: perform(core, agent, webhooks.RotateWebhook(id=one.id)),
        lambda: perform(core, agent, webhooks.SwitchWebhook(id=one.id)),
        lambda: perform(core, agent, webhooks.SwitchWebhook(id=one.id, off="x")),
        lambda: perform(core, agent, webhooks.RemoveWebhook(id=one.id)),
    ):
        with pytest.raises(NotAllowed):
            call()


def test_no_secret_travels_and_none_comes_in(room: Room, clock: FakeClock) -> None:
    one = made(room)
    room.mailbox("ann").send("human", "x")
    head, *lines, end = room.export()
    assert not [word for word in (one.secret, one.id, "whsec_") if word.encode() in b"".join(lines)]
    elsewhere = Room(MemoryStore(), Settings(), clock=clock)
    perform(elsewhere.core, OWNER, transfer.Copy(source=room.core))
    assert 1 == elsewhere.stats().letters and [] == perform(elsewhere.core, OWNER, webhooks.ListWebhooks())
    kept = to_plain(perform(room.core, OWNER, webhooks.GetWebhook(id=one.id)))
    smuggled = json.dumps({"record": {"kind": WEBHOOK, "key": one.id, "value": kept, "revision": 1}}).encode()
    with pytest.raises(Invalid, match="not a kind of record"):
        Room(MemoryStore(), Settings(), clock=clock).load([head, *lines, smuggled, end])

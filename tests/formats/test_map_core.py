"""MAP's protocol without sockets: names, addresses, messages, numbers of errors, states of a session."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import postroom
from postroom import PostroomError, errors
from postroom.core.verb import parameters
from postroom.errors import IllegalMove, Invalid
from postroom.formats import map as map_codec
from postroom.formats.errors import NoSuchMethod
from postroom.formats.map import (
    CONNECT,
    Incoming,
    Kin,
    MapAddress,
    Remote,
    Role,
    decode_message,
    dotted,
    encode_send,
    letter_fields,
    map_error,
    map_letter,
    number_of,
    read_address,
    request,
    spellings,
)
from postroom.map.session import BEFORE, MAP, STEPS, MapCall, MapSession, Response, SessionState, for_map
from postroom.model.codec import encode
from postroom.model.message import Message, content_of, part_from_json
from postroom.server.mail import MAIL
from tests.formats.asking import JSON, TEXT
from tests.formats.drawn import FULL, letters

CORE = """connect disconnect auth/refresh send subscribe unsubscribe agents/list agents/get agents/register
    agents/spawn agents/unregister agents/update agents/stop agents/suspend agents/resume structure/graph
    scopes/list scopes/get scopes/create scopes/delete scopes/join scopes/leave scopes/members""".split()
FORMS: list[tuple[Any, MapAddress]] = [
    ("bob", MapAddress(agents=("bob",))),
    ("agent:bob", MapAddress(agents=("bob",))),
    ("scope:team", MapAddress(scopes=("team",))),
    ("bob@away", MapAddress(remote=(Remote("away", "bob"),))),
    ("bob@away/team", MapAddress(remote=(Remote("away", "bob", "team"),))),
    ("@away", MapAddress(remote=(Remote("away"),))),
    ({"agent": "bob"}, MapAddress(agents=("bob",))),
    ({"agentId": "bob"}, MapAddress(agents=("bob",))),
    ({"agentId": "bob", "scope": "x"}, MapAddress(agents=("bob",))),
    ({"agents": ["bob", "cy", "bob"]}, MapAddress(agents=("bob", "cy"))),
    ({"participant": "bob"}, MapAddress(agents=("bob",))),
    ({"scope": "team"}, MapAddress(scopes=("team",))),
    ({"role": "worker"}, MapAddress(roles=(Role("worker"),))),
    ({"role": "worker", "within": "team"}, MapAddress(roles=(Role("worker", "team"),))),
    ({"parent": True}, MapAddress(kin=(Kin("parent"),))),
    ({"descendants": True, "depth": 2}, MapAddress(kin=(Kin("descendants", 2),))),
    ({"broadcast": True}, MapAddress(everyone=True)),
    ({"participants": "all"}, MapAddress(everyone=True)),
    ({"system": "away", "agent": "bob"}, MapAddress(remote=(Remote("away", "bob"),))),
    ({"system": "away", "agent": "bob", "scope": "x"}, MapAddress(remote=(Remote("away", "bob", "x"),))),
    (
        {"system": "away", "agents": ["bob", "cy"]},
        MapAddress(remote=(Remote("away", "bob"), Remote("away", "cy"))),
    ),
    ({"system": "away"}, MapAddress(remote=(Remote("away"),))),
    (["bob", {"scope": "team"}], MapAddress(agents=("bob",), scopes=("team",))),
]
NOBODY: list[Any] = [
    None, 7, "", "agent:", [], {}, {"agent": 7}, {"agent": ""}, {"agents": []}, {"agents": [1]}, {"scope": []},
    {"role": {}}, {"parent": "yes"}, {"broadcast": 1}, {"participants": "clients"}, {"system": True},
    {"system": "away", "agents": []}, {"system": "away", "agent": 7},
    {"children": True, "depth": 0}, [None], [["bob"]],
]  # fmt: skip


# -- names


def test_the_core_methods_of_map_are_in_the_table() -> None:
    assert {f"map/{name}" for name in CORE} <= set(MAP)


@pytest.mark.parametrize("name", MAP)
def test_both_spellings_of_a_name_are_one_method(name: str) -> None:
    assert {MAP[name]} == {for_map(spelling) for spelling in spellings(name)}


def test_agentic_mesh_writes_a_dot_after_the_noun() -> None:
    assert ["map/agents.list", "map/send", "map/events.replay", "mail/turns/list"] == [
        *map(dotted, ("map/agents/list", "map/send", "map/replay", "mail/turns/list"))
    ]


def test_conversations_are_served_and_nothing_else_is() -> None:
    assert MAIL["mail/turn"] is for_map("mail/turn")
    for name in ("map/inject", "mail/send", "authenticate", "check_inbox", ""):
        with pytest.raises(NoSuchMethod):
            for_map(name)


# -- addresses


@pytest.mark.parametrize(("to", "address"), FORMS)
def test_every_form_of_an_address_is_understood(to: Any, address: MapAddress) -> None:
    assert address == read_address(to)


@pytest.mark.parametrize("to", NOBODY, ids=repr)
def test_an_address_that_names_nobody_is_refused(to: Any) -> None:
    with pytest.raises(Invalid):
        read_address(to)


@given(JSON | st.lists(st.sampled_from([form for form, _ in FORMS]) | JSON, max_size=4))
def test_every_value_is_an_address_or_refused(to: Any) -> None:
    with suppress(Invalid):
        assert MapAddress() != read_address(to)


# -- messages


@given(
    st.fixed_dictionaries({}, optional={"payload": JSON, "meta": st.dictionaries(TEXT, JSON, max_size=3)}),
    st.sampled_from(["low", "normal", "high", "urgent"]),
)
def test_payload_and_meta_arrive_as_they_were_sent(params: dict[str, Any], priority: str) -> None:
    params = {"to": {"agent": "bob"}, **params}
    if "meta" in params:
        params["meta"] |= {"priority": priority, "correlationId": "c-1", "ttlMs": 60_000}
        params["meta"].pop("mail", None)
    with postroom.open("memory:") as room:
        fields = letter_fields(params)
        sent = room.mailbox("ann").send("bob", fields.pop("body"), **fields).message
        result = map_letter(room.mailbox("bob").check()[0].message)
    assert {"id": sent.id, "from": "ann", **params} == {k: v for k, v in result.items() if k != "timestamp"}
    if "meta" in params:
        assert (priority, "c-1", True) == (
            sent.priority.name.lower(),
            sent.thread_tag,
            sent.expires_at is not None,
        )


def over_the_link(letter: Message) -> Incoming:
    """What comes of a letter that goes through a link."""
    message = encode_send(
        letter, system="here", to="id-1", title="bob", expires_in=60.0, answers=None, beside=False
    )
    came = decode_message({"id": "M1", "from": "session", **json.loads(encode(message))})
    assert came is not None
    return came


def assert_said(letter: Message, came: Incoming) -> None:
    """All that MAP can say of a letter, and what its sender says beside that, has come."""
    fields, meta = came.fields, came.fields["metadata"]
    assert content_of(letter.parts) == content_of([part_from_json(part) for part in fields["body"]])
    assert (letter.priority.name.lower(), 60.0) == (fields["priority"], fields["expires"])
    assert (letter.subject, letter.conversation_id) == (fields.get("subject", ""), fields.get("conversation_id"))
    assert (letter.thread_tag or letter.thread, letter.in_reply_to) == (fields["thread_tag"], came.answers)
    assert letter.metadata.items() <= meta.items()
    assert (letter.id, letter.sender) == (came.origin, came.says_from)


@given(letters, st.sampled_from(["", "a subject"]), st.dictionaries(TEXT.map("x-{}".format), JSON, max_size=3))
def test_a_letter_survives_the_link(letter: Message, subject: str, metadata: dict[str, Any]) -> None:
    letter = replace(letter, subject=subject, metadata=metadata)
    assert_said(letter, over_the_link(letter))


@pytest.mark.parametrize("lost", ["body", "priority", "expires", "conversation_id", "subject", "metadata"])
def test_the_loss_of_any_field_of_a_message_would_be_found(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_said(FULL, over_the_link(FULL))
    monkeypatch.setattr(map_codec, "_LETTER_FIELDS", [name for name in map_codec._LETTER_FIELDS if name != lost])
    with pytest.raises((AssertionError, KeyError)):
        assert_said(FULL, over_the_link(FULL))


@pytest.mark.parametrize(
    "meta",
    [{"priority": "soon"}, {"priority": 3}, {"ttlMs": 0}, {"ttlMs": "1"}, {"ttlMs": True}, {"mail": "x"},
     {"mail": {"conversationId": "no id"}}],
)  # fmt: skip
def test_a_word_of_meta_that_decides_something_must_be_sound(meta: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        letter_fields({"to": "bob", "meta": meta})
    assert (refused.value.field or "").startswith("meta.")


def test_a_letter_that_came_another_way_is_reported_in_maps_words() -> None:
    with postroom.open("memory:") as room:
        room.mailbox("ann").send("bob", "hi", subject="s", thread_tag="t", extra={"map": "no note"})
        result = map_letter(room.mailbox("bob").check()[0].message)
    assert ("ann", {"agentId": "bob", "agent": "bob"}) == (result["from"], result["to"])
    assert {"type": "text", "text": "hi"} == result["payload"]
    assert ("s", "t", "normal") == tuple(result["meta"][word] for word in ("subject", "threadTag", "importance"))


# -- errors


def kinds() -> list[type[PostroomError]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PostroomError)]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_number_a_category_and_says_whether_to_try_again(kind: type[PostroomError]) -> None:
    result = map_error(kind("why", field="x"))
    assert {"category", "retryable", "details"} <= set(result["data"])
    assert result["data"]["retryable"] is kind.temporary
    is_ours = issubclass(kind, errors.Damaged) or kind is PostroomError
    assert is_ours == (result["code"] == -32603)
    assert ("internal" == result["data"]["category"]) == is_ours


def test_numbers_are_the_sdks() -> None:
    assert [1000, 1006, 1003, 2000, 2001, 2002, 3000, 3001, 3003, 4001, 4002, 5001] == [
        number_of(error)
        for error in (
            errors.NotAllowed(field="auth"), errors.NotAllowed(field="token"), errors.NotAllowed(),
            errors.Missing(field="to"), errors.UnknownAgent(), errors.Missing(field="scope"), errors.NameTaken(),
            errors.IllegalMove(field="state"), errors.IllegalMove(field="agent"), errors.TooFast(),
            errors.QuotaFull(), errors.Missing(field="system"),
        )
    ]  # fmt: skip


# -- sessions


def test_before_it_is_let_in_a_session_hears_of_nothing_but_who_it_is() -> None:
    session = MapSession("s")
    for name, cls in MAP.items():
        params = {one.name: "x" for one in parameters(cls).values() if one.required}
        received = session.receive(request(1, name, **params))
        if name in BEFORE[SessionState.CONNECTED]:
            assert isinstance(received, MapCall)
        else:
            assert isinstance(received, dict) and received["error"]["code"] == 1000
    session.step("admit")
    assert isinstance(session.receive(request(1, "map/agents/list")), MapCall)
    again = session.receive(request(1, CONNECT, participantType="agent"))
    assert isinstance(again, dict) and 3001 == again["error"]["code"]


@given(st.lists(st.sampled_from([*{step for _, step in STEPS}, "no such step"]), max_size=12))
def test_a_session_goes_only_where_the_table_leads(steps: list[str]) -> None:
    session = MapSession("s")
    for step in steps:
        before = session.state
        if (before, step) in STEPS:
            session.step(step)
            assert STEPS[before, step] is session.state
        else:
            with pytest.raises(IllegalMove):
                session.step(step)
            assert before is session.state


def test_a_session_says_what_its_own_agent_says() -> None:
    session = MapSession("s")
    session.step("admit")
    session.take("ann")
    session.take("ann.kid")
    step = session.receive(request(1, "map/send", to="bob"))
    assert isinstance(step, MapCall) and ("ann", "ann") == (step.request.named(), session.speaker(step))
    step = session.receive(request(1, "map/agents/update", agentId="ann.kid", state="busy"))
    assert isinstance(step, MapCall) and "ann.kid" == session.speaker(step)
    step = session.receive(request(1, "map/agents/update", agentId="bob", state="busy"))
    assert isinstance(step, MapCall) and session.speaker(step) is None
    session.drop("ann")
    session.drop("ann.kid")
    assert SessionState.JOINED is session.state
    session.step("close")
    assert session.receive(request(1, "map/send", to="bob")) is None


@given(JSON | st.fixed_dictionaries({"jsonrpc": st.just("2.0")}, optional={
    "id": JSON, "method": st.sampled_from([*MAP, "mail/turn"]) | TEXT, "params": JSON, "result": JSON,
    "error": JSON,
}))  # fmt: skip
def test_whatever_comes_is_understood_or_refused_by_a_number(value: Any) -> None:
    for state in (SessionState.CONNECTED, SessionState.JOINED):
        session = MapSession("s")
        session.state = state
        received = session.receive(value)
        if isinstance(received, dict):
            assert isinstance(received["error"]["code"], int) and received["error"]["code"] != -32603
            assert received["error"]["data"]["category"] in {"protocol", "auth", "agent", "mail"}
        else:
            assert received is None or isinstance(received, Response | MapCall)

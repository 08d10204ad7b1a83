"""The methods `mail/*` in both dialects at once (I3, I8): shapes, pages, errors, and who may."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom import Invalid, Missing, PostroomError, Room, StoreBusy, UnknownAgent
from postroom.core.authorize import RULES, Principal, agent_principal
from postroom.core.verb import parameters, perform
from postroom.formats.errors import mail_problem
from postroom.formats.mail import read_turn, turn_record
from postroom.model.values import check_label
from postroom.server.mail import MAIL
from postroom.settings import Settings
from postroom.store.sqlite.memory import MemoryStore
from tests.conftest import LONG
from tests.formats.asking import ANYTHING, PAYLOADS, ask, refused
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory

CONVERSATION = {"id", "scope", "status", "participants", "metadata", "created_at", "updated_at"}
MAP_CONVERSATION = {"id", "type", "status", "participantCount", "createdAt", "updatedAt", "createdBy", "metadata"}
TURN = {"id", "conversation_id", "participant_id", "source_message_id", "content_type", "content", "created_at"}
MAP_TURN = {"id", "conversationId", "participant", "timestamp", "contentType", "content", "source", "status"}
THREAD = {"id", "conversation_id", "root_turn_id", "created_at"}
MAP_THREAD = {"id", "conversationId", "rootTurnId", "turnCount", "participantCount", "createdAt", "updatedAt"}
SEAT = {"agent_id", "joined_at"}
MAP_SEAT = {"id", "type", "joinedAt", "permissions"}


def talk(room: Room, *members: str, **message: Any) -> str:
    opened = ask(
        room, "create", agentId=members[0], initialParticipants=[{"id": x} for x in members[1:]], **message
    )
    return str(opened["id"])


def say(room: Room, id: str, who: str, content: Any = "hi", **message: Any) -> str:
    return str(ask(room, "turn", conversationId=id, participantId=who, content=content, **message)["id"])


def contents(answer: dict[str, Any]) -> list[Any]:
    return [turn["content"] for turn in answer["turns"]]


def test_every_method_of_the_design_has_a_row_and_a_rule() -> None:
    names = """create get list close reopen join leave invite turn turns/list thread/create thread/list summary
        replay presence recent""".split()
    assert [f"mail/{name}" for name in names] == [*MAIL]
    for cls in MAIL.values():
        row = cls.declaration()
        assert row.action in RULES and row.about and row.result and not row.strict
        assert cls.whose in {None, *parameters(cls)}


def test_the_words_of_agent_inbox(room: Room) -> None:
    """Every call as its programs make it, every answer as they read it."""
    bare = ask(room, "create", id="c-1", scope="team", subject="S", metadata={"a": 1})
    assert bare.keys() >= CONVERSATION
    assert ("c-1", "team", "S", "active", [], {"a": 1}) == tuple(
        bare[k] for k in ("id", "scope", "subject", "status", "participants", "metadata")
    )
    assert ask(room, "create")["id"].startswith("conv-")
    for name in ("ann", "bob"):
        assert ask(room, "join", conversationId="c-1", agentId=name)["ok"] is True
    assert ask(room, "invite", conversationId="c-1", agentId="carol", role="r")["ok"] is True
    turn = ask(room, "turn", conversationId="c-1", participantId="ann", content="hi", importance="high")
    assert turn.keys() >= TURN
    assert ("ann", "text", "hi", "high", f"turn-{turn['source_message_id']}") == tuple(
        turn[k] for k in ("participant_id", "content_type", "content", "importance", "id")
    )
    thread = ask(room, "thread/create", conversationId="c-1", rootTurnId=turn["id"], subject="T")
    assert thread.keys() >= THREAD
    whole = ask(room, "get", id="c-1")
    assert whole.keys() >= {"conversation", "turns", "threads"}
    assert {"ann", "bob", "carol"} == {p["agent_id"] for p in whole["conversation"]["participants"]}
    assert whole["conversation"]["participants"][2]["role"] == "r"
    again = ask(room, "replay", id="c-1")
    assert all(again[name] == whole[name] for name in ("conversation", "turns", "threads"))
    assert [turn["id"]] == [t["id"] for t in ask(room, "turns/list", conversationId="c-1")["turns"]]
    assert [thread["id"]] == [t["id"] for t in ask(room, "thread/list", conversationId="c-1")["threads"]]
    assert ["c-1"] == [c["id"] for c in ask(room, "list", scope="team")["conversations"]]
    assert ask(room, "leave", conversationId="c-1", agentId="bob")["ok"] is True
    assert ask(room, "close", id="c-1")["ok"] is True
    assert "completed" == ask(room, "get", id="c-1")["conversation"]["status"]
    reopened = ask(room, "reopen", id="c-1")
    assert ("c-1", "active") == (reopened["conversationId"], reopened["status"])
    assert 10000 == refused(room, "turns/list", conversationId="nowhere")["code"]


def test_the_words_of_map(factory: RoomFactory) -> None:
    """In an agent's own MAP session the sender is implied, and results are wrapped."""
    room = factory.room(agent_principal("ann"))
    made = ask(
        room, "create", type="agent-task", subject="S",
        initialParticipants=[{"id": "bob", "role": "worker", "permissions": {"canSend": True}}],
        initialTurn={"contentType": "text", "content": {"text": "go"}},
    )  # fmt: skip
    id = made["conversation"]["id"]
    assert made["conversation"].keys() >= MAP_CONVERSATION
    assert made["participant"].keys() >= MAP_SEAT and made["participant"]["role"] == "initiator"
    assert made["initialTurn"].keys() >= MAP_TURN and made["initialTurn"]["content"] == {"text": "go"}
    assert ("agent-task", 2, "ann") == tuple(
        made["conversation"][k] for k in ("type", "participantCount", "createdBy")
    )
    assert ["go"] == [letter.text for letter in factory.room().mailbox("bob").check(peek=True)]
    turn = ask(room, "turn", conversationId=id, contentType="x-call", content={"f": 1}, metadata={"m": 1})["turn"]
    assert turn.keys() >= MAP_TURN
    assert ("x-call", {"f": 1}, {"type": "explicit", "method": "mail/turn"}, {"m": 1}, "complete") == tuple(
        turn[k] for k in ("contentType", "content", "source", "metadata", "status")
    )
    thread = ask(room, "thread/create", conversationId=id, rootTurnId=turn["id"])["thread"]
    assert thread.keys() >= MAP_THREAD and thread["createdBy"] == "ann"
    inside = ask(room, "turn", conversationId=id, content="in", threadId=thread["id"], inReplyTo=turn["id"])[
        "turn"
    ]
    assert (thread["id"], turn["id"]) == (inside["threadId"], inside["inReplyTo"])
    got = ask(room, "get", conversationId=id, include={"participants": True, "recentTurns": 2, "stats": True})
    assert [turn["id"], inside["id"]] == [t["id"] for t in got["recentTurns"]]
    assert (3, {"text": 2, "x-call": 1}, 2, 1) == tuple(
        got["stats"][k] for k in ("totalTurns", "turnsByContentType", "activeParticipants", "threadCount")
    )
    assert 1 == ask(room, "thread/list", conversationId=id)["threads"][0]["turnCount"]
    assert {"invited": True}.items() <= ask(room, "invite", conversationId=id, participant={"id": "carol"}).items()
    joined = ask(factory.room(agent_principal("carol")), "join", conversationId=id, catchUp={"from": "beginning"})
    assert joined.keys() >= {"conversation", "participant", "history"} and joined["history"] == []
    assert "completed" == ask(room, "close", conversationId=id)["conversation"]["status"]
    left = ask(room, "leave", conversationId=id)
    assert left["success"] is True and isinstance(left["leftAt"], int)


SAID = ("content", "content_type", "thread_id", "in_reply_to", "importance", "visibility", "metadata")


def turn_again(record: dict[str, Any], room: Room) -> dict[str, Any]:
    """What is read of a turn that has the fields of another."""
    turn = read_turn({name: record[name] for name in SAID if name in record})
    turn.conversation, turn.agent_id = record["conversation_id"], record["participant_id"]
    return turn_record(perform(room.core, room.principal, turn))


@given(
    PAYLOADS.filter(lambda payload: payload is not None),
    st.sampled_from(["low", "normal", "high", "urgent"]),
    st.dictionaries(st.text("abc", max_size=3), st.integers(0, 9), max_size=2),
    st.booleans(),
)
def test_a_turn_comes_back_as_it_was(
    payload: Any, importance: str, metadata: dict[str, Any], answers: bool
) -> None:
    room = Room(MemoryStore(), Settings(), clock=FakeClock())
    id = talk(room, "ann", "bob")
    reply = {"inReplyTo": say(room, id, "bob")} if answers else {}
    rest = {"importance": importance, "metadata": metadata, "visibility": {"type": "all"}, **reply}
    first = ask(room, "turn", id=id, participantId="ann", content=payload, contentType="x-own", **rest)["turn"]
    again = turn_again(first, room)
    assert {name: first.get(name) for name in SAID} == {name: again.get(name) for name in SAID}


@pytest.mark.parametrize(
    "lost", ["content", "content_type", "in_reply_to", "importance", "visibility", "metadata"]
)
def test_the_loss_of_any_field_of_a_turn_would_be_found(
    lost: str, monkeypatch: pytest.MonkeyPatch, room: Room
) -> None:
    id = talk(room, "ann", "bob")
    rest = {"importance": "high", "metadata": {"a": 1}, "visibility": {"type": "all"}, "contentType": "x-own"}
    first = ask(room, "turn", id=id, participantId="ann", content=[1], inReplyTo=say(room, id, "bob"), **rest)
    assert turn_again(first, room)[lost] == first[lost]
    monkeypatch.setattr(f"{__name__}.SAID", tuple({*SAID} - {lost} | {"content"}))
    changed = first | {"content": "other"} if lost == "content" else first
    assert turn_again(changed, room).get(lost) != first[lost]


@given(PAYLOADS.filter(lambda payload: payload is not None))
def test_a_turn_holds_what_was_written(payload: Any) -> None:
    room = Room(MemoryStore(), Settings(), clock=FakeClock())
    id = talk(room, "ann")
    for message in ({}, {"contentType": "text"}, {"contentType": "x-own"}):
        typed = isinstance(payload, dict) and isinstance(payload.get("type"), str)
        label = payload["type"] if typed and not message else message.get("contentType", "text")
        try:
            check_label(label, "content_type")
        except Invalid:
            with pytest.raises(Invalid):
                ask(room, "turn", id=id, participantId="ann", content=payload, **message)
            continue
        turn = ask(room, "turn", id=id, participantId="ann", content=payload, **message)
        assert (payload, label) == (turn["content"], turn["content_type"])
        assert turn.keys() >= TURN | MAP_TURN
        assert turn == turn["turn"] | {"turn": turn["turn"]}
        assert turn["turn"] == ask(room, "turns/list", id=id)["turns"][-1]


@settings(max_examples=500 if LONG else 25)
@given(st.sampled_from([*MAIL]), st.data())
def test_every_request_is_answered_or_refused(name: str, data: st.DataObject) -> None:
    room = Room(MemoryStore(), Settings(), clock=FakeClock())
    talk(room, "ann", "bob", id="c-1")
    say(room, "c-1", "ann")
    message = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(parameters(MAIL[name]), ANYTHING)))
    for caller in (room, room.acting_as(agent_principal("ann"))):
        for more in ({}, {"conversation_id": "c-1"}):
            with suppress(PostroomError):
                ask(caller, name.removeprefix("mail/"), **(message | more))


def test_a_letter_is_a_turn_of_its_conversation_too(room: Room) -> None:
    letter = room.mailbox("ann").send("bob", "x", thread_tag="plan", subject="s").id
    (found,) = ask(room, "list")["conversations"]
    (turn,) = ask(room, "turns/list", conversationId=found["id"])["turns"]
    assert {"type": "intercepted", "messageId": letter} == turn["source"]
    assert ({"type": "text", "text": "x"}, "text", "plan") == (
        turn["content"],
        turn["content_type"],
        found["subject"],
    )
    forged = room.mailbox("ann").send("bob", "x", extra={"turn": {"shape": 7}}).id  # no note at all
    assert "intercepted" == ask(room, "recent", limit=1)["turns"][0]["source"]["type"]
    assert forged == ask(room, "recent", limit=1)["messages"][0]["id"]


def test_turns_come_in_pages_that_miss_nothing(room: Room, clock: FakeClock) -> None:
    id = talk(room, "ann", "bob")
    for number in range(7):
        say(room, id, "ann" if number % 2 else "bob", number)
        clock.advance(1)
    assert list(range(7)) == contents(ask(room, "turns/list", conversationId=id))
    for order in ("asc", "desc"):
        seen: list[Any] = []
        cursor: dict[str, Any] = {}
        while True:
            page = ask(room, "turns/list", conversationId=id, limit=3, order=order, **cursor)
            seen += contents(page)
            if not page["hasMore"]:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert seen == (list(range(7)) if order == "asc" else list(range(6, -1, -1)))
    turns = ask(room, "turns/list", conversationId=id)["turns"]

    def some(**filter: Any) -> list[Any]:
        return contents(ask(room, "turns/list", conversationId=id, filter=filter))

    assert [1, 3, 5] == some(participantId="ann")
    assert [5, 6] == some(afterTurnId=turns[4]["id"]) == some(afterTimestamp=turns[4]["timestamp"])
    assert [0] == some(beforeTurnId=turns[1]["id"]) == some(beforeTimestamp=turns[1]["created_at"])
    assert [] == some(contentTypes=["x-none"]) == some(threadId="thread-none")
    assert 10004 == refused(room, "turns/list", conversationId=id, filter={"afterTurnId": "turn-none"})["code"]
    for wrong in (
        {"order": "up"},
        {"limit": 0},
        {"filter": {"afterTimestamp": "soon"}},
        {"filter": {"threadId": 1}},
    ):
        with pytest.raises(Invalid):
            ask(room, "turns/list", conversationId=id, **wrong)


def test_threads_come_in_pages_too(room: Room) -> None:
    id = talk(room, "ann", "bob")
    root = say(room, id, "ann")
    ids = [ask(room, "thread/create", conversationId=id, rootTurnId=root)["id"]]
    for _ in range(2):
        ids.append(ask(room, "thread/create", conversationId=id, rootTurnId=root, parentThreadId=ids[0])["id"])
    page = ask(room, "thread/list", conversationId=id, limit=2)
    rest = ask(room, "thread/list", conversationId=id, cursor=page["nextCursor"])
    assert ids == [thread["id"] for thread in (*page["threads"], *rest["threads"])]
    inside = ask(room, "thread/list", conversationId=id, parentThreadId=ids[0])["threads"]
    assert ids[1:] == [thread["id"] for thread in inside]


def test_replay_says_what_was_missed(room: Room, clock: FakeClock) -> None:
    id = talk(room, "ann", "bob")
    ids = []
    for number in range(5):
        clock.advance(1)
        ids.append(say(room, id, "ann", number))
    page = ask(room, "replay", conversationId=id, fromTurnId=ids[0], limit=3)
    assert ([1, 2, 3], True, ids[3], 4) == (
        contents(page), page["hasMore"], page["nextCursor"], page["missedCount"],
    )  # fmt: skip
    rest = ask(room, "replay", conversationId=id, cursor=page["nextCursor"], limit=3)
    assert ([4], False, 1) == (contents(rest), rest["hasMore"], rest["missedCount"])
    time = ask(room, "get", id=id)["turns"][3]
    for message in (time["timestamp"], time["created_at"]):
        assert [3, 4] == contents(ask(room, "replay", conversationId=id, fromTimestamp=message))
    assert [3, 4] == contents(ask(room, "replay", conversationId=id, count=2))
    assert 10004 == refused(room, "replay", conversationId=id, fromTurnId="turn-none")["code"]


def test_conversations_come_in_pages_and_by_filter(room: Room, clock: FakeClock) -> None:
    ids = []
    for number in range(5):
        ids.append(
            talk(room, "ann", *(["bob"] if number % 2 else []), type="mixed" if number == 4 else "agent-task")
        )
        clock.advance(1)
    ask(room, "close", id=ids[0])
    clock.advance(1)
    order = [ids[0], ids[4], ids[3], ids[2], ids[1]]
    assert order == [c["id"] for c in ask(room, "list")["conversations"]]
    page = ask(room, "list", limit=2)
    assert (order[:2], True) == ([c["id"] for c in page["conversations"]], page["hasMore"])
    rest = ask(room, "list", limit=10, cursor=page["nextCursor"])
    assert (order[2:], False) == ([c["id"] for c in rest["conversations"]], rest["hasMore"])

    def some(**filter: Any) -> list[str]:
        return [c["id"] for c in ask(room, "list", filter=filter)["conversations"]]

    assert [ids[0]] == some(status=["completed"]) == some(status="completed")
    assert [ids[4]] == some(type=["mixed"])
    assert [ids[3], ids[1]] == some(participantId="bob")
    middle = ask(room, "get", id=ids[2])["conversation"]["createdAt"]
    assert [ids[4], ids[3]] == some(createdAfter=middle)
    assert [ids[0], ids[1]] == some(createdBefore=middle)


def test_summary_counts_and_presence_tells(room: Room) -> None:
    id = talk(room, "ann", "bob")
    first, second = say(room, id, "ann"), say(room, id, "bob", {"n": 1}, contentType="data")
    result = ask(room, "summary", conversationId=id)
    assert (False, "active") == (result["generated"], result["status"])
    assert result["summary"].startswith("2 turns, 2 participants, 0 threads")
    assert (first, second) == (result["firstTurn"]["id"], result["lastTurn"]["id"])
    assert {"ann": 1, "bob": 1} == result["stats"]["turnsByParticipant"]
    for scope, count in (({"fromTurnId": second}, 1), ({"toTurnId": first}, 1), ({"threadId": "thread-x"}, 0)):
        assert count == ask(room, "summary", conversationId=id, scope=scope)["stats"]["totalTurns"]
    room.mailbox("ann").register()
    there = ask(room, "presence", conversationId=id)
    assert [("ann", "ann", "active"), ("bob", "bob", "unknown")] == [
        (p["agent_id"], p["participantId"], p["presence"]) for p in there["participants"]
    ]
    with pytest.raises(Invalid):
        ask(room, "presence")


def test_errors_have_the_numbers_both_dialects_know(factory: RoomFactory) -> None:
    room, ann, eve = factory.room(), factory.room(agent_principal("ann")), factory.room(agent_principal("eve"))
    id = talk(room, "ann", "bob")
    first = say(room, id, "ann")
    absent = refused(room, "get", id="nowhere")
    assert (10000, "Conversation not found", 10000) == (absent["code"], absent["message"], absent["data"]["code"])
    assert 10010 == refused(room, "create", parentConversationId="nowhere")["code"]
    assert 10004 == refused(ann, "thread/create", conversationId=id, rootTurnId="turn-x")["code"]
    assert 10004 == refused(ann, "turn", conversationId=id, content="x", inReplyTo="turn-x")["code"]
    assert 10005 == refused(room, "turn", id=id, participantId="ann", content="x", threadId="thread-x")["code"]
    assert 10005 == refused(room, "thread/list", id=id, cursor="thread-x")["code"]
    assert 10006 == refused(ann, "turn", conversationId=id)["code"]
    assert 10006 == refused(ann, "turn", conversationId=id, content=None)["code"]
    assert 10006 == refused(ann, "turn", conversationId=id, content="a\0b")["code"]
    assert 10003 == refused(eve, "turn", conversationId=id, participantId="ann", content="x")["code"]
    ask(room, "invite", conversationId=id, agentId="eve")
    ask(eve, "leave", conversationId=id)
    assert 10002 == refused(eve, "turn", conversationId=id, content="x")["code"]
    assert 10002 == refused(eve, "close", conversationId=id)["code"]
    ask(ann, "close", conversationId=id)
    closed = refused(ann, "turn", conversationId=id, content="x", inReplyTo=first)
    assert (10001, 10001, "mail", False) == (
        closed["code"], closed["data"]["code"], closed["data"]["category"], closed["data"]["retryable"],
    )  # fmt: skip
    for other in (
        Invalid("x", field="limit"),
        StoreBusy(),
        UnknownAgent("x", field="to"),
        Missing("x", field="y"),
    ):
        assert mail_problem(other) is None


def test_absent_and_forbidden_look_the_same(factory: RoomFactory) -> None:
    """Whatever a stranger says about a conversation of others, it hears what it would hear of none."""
    room = factory.room()
    id = talk(room, "ann", "bob")
    root = say(room, id, "ann", "secret")
    params = {"content": "x", "rootTurnId": root, "fromTurnId": root, "participant": {"id": "eve"}}
    who = {"participantId": "eve", "agentId": "eve"}
    for principal in (agent_principal("eve"), Principal("nobody")):
        stranger = factory.room(principal)
        for name in MAIL.keys() - {"mail/create", "mail/list", "mail/recent"}:
            received = []
            for one in (id, "conv-nowhere"):
                problem = refused(stranger, name.removeprefix("mail/"), conversationId=one, **who, **params)
                received.append((problem["code"], problem["message"].replace(one, "ID")))
            assert received[0] == received[1], name
        if principal.agent is not None:
            assert "secret" not in str([ask(stranger, "list"), ask(stranger, "recent")])
        for forged in ({**who, "id": id}, {"agentId": "ann"}):
            with pytest.raises(PostroomError):
                ask(stranger, "create", **forged)
    assert ["secret"] == contents(ask(room, "turns/list", id=id))
    assert ["ann", "bob"] == [p["agent_id"] for p in ask(room, "get", id=id)["conversation"]["participants"]]


def test_an_agent_sees_its_own_letters_alone_and_never_bcc(factory: RoomFactory) -> None:
    room, bob, eve = factory.room(), factory.room(agent_principal("bob")), factory.room(agent_principal("eve"))
    room.mailbox("ann").send("bob", "1", bcc="eve", conversation_id="c-1")
    room.mailbox("ann").send("bob", "2", conversation_id="c-1")
    for caller, count in ((room, 2), (bob, 2), (eve, 1)):
        whole, summary = ask(caller, "get", id="c-1"), ask(caller, "summary", id="c-1")
        others = [ask(caller, "list"), ask(caller, "recent"), ask(caller, "presence", id="c-1")]
        assert "eve" not in str([whole, summary, others])
        assert count == len(whole["turns"]) == summary["stats"]["totalTurns"]


def test_the_same_answers_after_a_restart(factory: RoomFactory) -> None:
    room = factory.room()
    id = talk(room, "ann", "bob", subject="S")
    first = say(room, id, "ann")
    say(room, id, "bob", inReplyTo=first)
    room.mailbox("ann").send("bob", "x", thread_tag="plan")
    before = [ask(room, "list"), ask(room, "get", id=id), ask(room, "recent"), ask(room, "summary", id=id)]
    factory.reopen()
    room = factory.room()
    assert before == [ask(room, "list"), ask(room, "get", id=id), ask(room, "recent"), ask(room, "summary", id=id)]


def test_an_answer_shows_the_seat_of_its_participant(room: Room) -> None:
    room.mailbox("bob").register()
    id = talk(room, "user", "bob")
    rename(room, "bob", "robert")
    ask(room, "invite", conversationId=id, agentId="carol")
    assert "robert" == ask(room, "invite", conversationId=id, agentId="bob", role="r")["participant"]["id"]
    assert "human" == ask(room, "join", conversationId=id, agentId="ceo")["participant"]["id"]


def test_recent_letters_come_as_map_writes_them(room: Room) -> None:
    room.mailbox("carol").register(scopes=["team"])
    room.mailbox("ann").send("bob", "1", priority="high", subject="s")
    room.mailbox("ann").send(["bob", "carol"], "2", bcc="eve")
    room.mailbox("ann").broadcast("team", "3")
    one, two, three = ask(room, "recent", limit=200)["messages"]
    assert ("ann", {"agentId": "bob", "agent": "bob"}, {"type": "text", "text": "1"}) == (
        one["from"], one["to"], one["payload"],
    )  # fmt: skip
    assert {"importance": "high", "subject": "s", "messageId": one["id"]}.items() <= one["meta"].items()
    assert ({"agents": ["bob", "carol"]}, {"scope": "team"}) == (two["to"], three["to"])
    assert 2 == len(ask(room, "recent", limit=2)["turns"])


def test_pages_of_conversations_hold_each_once_wherever_it_changed_last(room: Room, clock: FakeClock) -> None:
    """Some were opened, some follow from letters alone, and some changed after their newest letter."""
    ids = []
    for number in range(12):
        if number % 3:
            ids.append(talk(room, "ann", "bob"))
            say(room, ids[-1], "bob")
        else:
            ids.append(f"talk-{number}")
            room.mailbox("ann").send("bob", "hi", conversation_id=ids[-1])
        clock.advance(1)
    for number in (1, 8):
        ask(room, "close", id=ids[number])
        clock.advance(1)
    say(room, ids[5], "ann")
    clock.advance(1)
    ask(room, "close", id=ids[4])
    order = [ids[n] for n in (4, 5, 8, 1, 11, 10, 9, 7, 6, 3, 2, 0)]
    for caller in (None, "bob"):
        mine = room if caller is None else room.acting_as(agent_principal(caller))
        assert order == [one["id"] for one in ask(mine, "list")["conversations"]]
        for limit in (1, 2, 5):
            found: list[str] = []
            page: dict[str, Any] = {"nextCursor": None}
            while "nextCursor" in page:
                page = ask(mine, "list", limit=limit, cursor=page["nextCursor"])
                found += [one["id"] for one in page["conversations"]]
            assert order == found
    with pytest.raises(Invalid, match="no conversation 'talk-none'"):
        ask(room, "list", cursor="talk-none")


def test_pages_of_conversations_end_though_letters_are_not_in_the_order_of_time(
    room: Room, clock: FakeClock
) -> None:
    """As after a copy from another room, or with a clock that was set back."""
    ann = room.mailbox("ann")
    ann.send("bob", "first", conversation_id="c0")
    clock.advance(10)
    opened = talk(room, "ann")
    clock.advance(10)
    ann.send("bob", "new", conversation_id="c2")
    clock.jump(-15)
    ann.send("bob", "old", conversation_id="c1")
    whole = [one["id"] for one in ask(room, "list")["conversations"]]
    assert {"c0", "c1", "c2", opened} == {*whole}
    found: list[str] = []
    page: dict[str, Any] = {"nextCursor": None}
    while "nextCursor" in page and len(found) <= len(whole):
        page = ask(room, "list", limit=1, cursor=page["nextCursor"])
        found += [one["id"] for one in page["conversations"]]
    assert whole == found


def test_a_member_of_a_long_conversation_finds_it_and_is_shown_in_it(room: Room, clock: FakeClock) -> None:
    """A list shows only the first letter and the newest ones; the members are those of all letters."""
    id = talk(room, "ann")
    for sender, recipient in (("ann", "bob"), ("bob", "carol"), ("carol", "dora")):
        room.mailbox(sender).send(recipient, "x", conversation_id=id)
    for _ in range(60):
        room.mailbox("ann").send("bob", "x", conversation_id=id)
        clock.advance(1)
    room.mailbox("dora").send("ann", "x", conversation_id=id)
    for caller in (None, "ann", "dora"):
        mine = room if caller is None else room.acting_as(agent_principal(caller))
        (listed,) = ask(mine, "list")["conversations"]
        assert {"ann", "dora"} <= {one["id"] for one in listed["participants"]}
    for caller in (None, "carol"):
        mine = room if caller is None else room.acting_as(agent_principal(caller))
        assert [id] == [one["id"] for one in ask(mine, "list", filter={"participantId": "carol"})["conversations"]]

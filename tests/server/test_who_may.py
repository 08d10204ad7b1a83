"""Who may do what, over every wire: made from the table of methods, so that none is forgotten.

Every call goes the way it goes in a daemon: by `Caller.carry_out`, on a desk. Success, a refusal and another error
are told apart. A conversation that somebody may not see is Missing for them, which is no success.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

import postroom
from postroom import NotAllowed, PostroomError, Room
from postroom.core import agents, inbox, tokens
from postroom.core.authorize import NEEDS, OWNER, RULES, SCOPES, SOCKET, Principal, authorize
from postroom.core.conversations import Guest, OpenConversation
from postroom.core.verb import Verb, from_params, parameters, perform
from postroom.formats.map import FEDERATION
from postroom.map.session import MAP
from postroom.mcp.tools import PREFIX, TOOLS, arguments
from postroom.model.alert import Rung
from postroom.model.codec import encode
from postroom.model.query import Query
from postroom.model.record import CONVERSATION
from postroom.server.broker import Broker
from postroom.server.callers import Caller, PrincipalCalls
from postroom.server.describe import kind_of
from postroom.server.executor import Executor
from postroom.server.inbox_actions import ACTIONS
from postroom.server.mail import MAIL
from postroom.server.protocol import Call, wire_verbs
from postroom.server.requests import SessionVerb
from tests import conversing
from tests.renaming import rename

METHODS: dict[str, type[Verb]] = {f"action {name}": row for name, row in ACTIONS.items()} | {
    **{f"mail/{name}": row for name, row in wire_verbs().items()},
    **MAIL,
    # What a session does itself: map/test_access; what systems say to each other: federation/test_strangers.
    **{name: row for name, row in MAP.items() if not issubclass(row, SessionVerb) and name not in FEDERATION},
}
# What these say of alice, for whom no parameter of the table stands.
INSIDE = {"action notify": {"event": {"type": "agent.spawn", "agent": {"agentId": "alice"}}}}
CALLERS_OWN = {name for name, row in METHODS.items() if row.whose is None and name not in INSIDE}
TALK = "talk-1"
WORD = "zebra"  # in all that is said to alice and by her, and nowhere else
# Where even the right caller hears an error, for want of what it names: which one.
NOT_DONE = {
    "mail/renew": "LeaseLost", "mail/release": "IllegalMove", "mail/unsend": "UnknownMessage",
    "mail/fail": "IllegalMove", "mail/resolve": "Missing", "map/agents/spawn": "NameTaken",
}  # fmt: skip
# Where a verb asks for more than its row: to tell a task is to show its letters, to move one is to send one, and
# to ask is to send and to read.
ALONE_ENOUGH: dict[str, set[str]] = {
    "mail/task": {"work"},
    "mail/act": {"work"},
    "mail/task_step": {"send"},
    "mail/ask": set(),
}
VISIT = Principal("visit-1", visit="visit-1")
# What somebody hears as itself of a conversation it is not in.
OF_AN_OPERATOR = {"map/agents/register": "NameTaken"}  # whose token is no proof of being a live agent
OF_A_STRANGER = dict.fromkeys(
    ("mail/get", "mail/close", "mail/reopen", "mail/invite", "mail/thread/create", "mail/thread/list",
     "mail/turns/list", "mail/summary", "mail/replay", "mail/presence"), "Missing",
)  # fmt: skip


class Told(Call):
    """A call that is answered in no dialect: done, or the name of an error."""

    def answer(self, result: Any) -> dict[str, Any]:
        return {"told": "done", "result": result}

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        return {"told": type(error).__name__, "error": str(error)}


def action_of(name: str) -> str:
    return METHODS[name].declaration().action


def checked(method: type[Verb], params: dict[str, Any]) -> Verb:
    """The request that these words make, without those that the verb does not know."""
    return from_params(method, {name: params[name] for name in params if name in parameters(method)})


class Filled:
    """A room with something in it for every method."""

    def __init__(self, room: Room) -> None:
        self.room, core = room, room.core
        alice, bob = room.mailbox("alice"), room.mailbox("bob")
        bob.register(scopes=["default"])
        alice.register(scopes=["default"])
        self.dead = bob.send("alice", WORD).id
        (held,) = [alice.claim()]
        assert held is not None
        held.fail("no", retry=False)
        self.letter = bob.send("alice", WORD, subject=WORD, thread_tag="tag").id
        self.task = bob.give_task("alice", WORD).id
        opening = OpenConversation(id=TALK, creator="alice", guests=(Guest(agent="bob"),), subject=WORD)
        conversing.create(core, OWNER, opening)
        self.turn = alice.send("bob", WORD, conversation_id=TALK).id
        room.save_template("plain", body="hello")
        perform(core, OWNER, agents.CreateScope(agent_id="alice", scope_id="team"))
        self.cursor = str(room.cursor())

    def _unused_token(self) -> str:
        """The id of an operator's token with which nobody calls: one of an agent would seal it."""
        return perform(self.room.core, OWNER, tokens.CreateToken()).token.id

    def params_of(
        self, name: str, method: type[Verb], more: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Words for a method, about alice; `more` for methods of other tables."""
        known = {
            **more,
            "to": "dan", "scope": "default", "escalation_id": "m-1", "conversation": TALK,
            "step": "accept", "query": WORD, "since": self.cursor, "thread": self.letter,
            "thread_tag": "tag", "tag": "tag", "message_id": self.letter, "message_ids": [self.letter],
            "id": self.letter, "ids": [self.letter],
            "root_turn_id": f"turn-{self.turn}", "content": "x", "event": {"type": "x"}, "reason": "blocked",
            "drafts": [{"to": "bob", "body": "x"}], "handoff": {"work_completed": "x"}, "name": "plain",
            "ladder": ["bob"], "old": "alice", "new": "alba",
            "scope_id": "team", "parent": "alice", "agent_id": "bob", "host": "claude",
            "way": "claude", "why": "x", "action": "done", "until": "2000-01-01T00:00:00Z",
        }  # fmt: skip
        params: dict[str, Any] = {p.name: known[p.name] for p in parameters(method).values() if p.required}
        names = set(parameters(method))
        params |= {"timeout": 0} if "timeout" in names else {}
        params |= {"payload": "x"} if "payload" in names else {}
        params |= {"to": "dan"} if name in {"action send", "mail/send", "map/send"} else {}
        params |= {"conversation_id": TALK} if name in MAIL and "conversation_id" in names else {}
        params |= {"ladder": ["bob"]} if "ladder" in names else {}
        one, several = ("id", "ids") if names & {"id", "ids"} else ("message_id", "message_ids")
        params |= {one: self.task} if name in {"mail/task", "mail/task_step"} else {}
        params |= {several: [self.dead]} if name in {"mail/revive", "mail/purge_dead"} else {}
        params |= {"name": "alice"} if name == "mail/agent" else {}
        params |= {"letter": self.letter} if name == "mail/act" else {}
        params |= {"id": self._unused_token()} if name == "mail/revoke_token" else {}
        params |= {"name": "carl"} if name in {"mail/block", "mail/unblock"} else {}
        params |= {"participant_id": "dan"} if name == "mail/invite" else {}
        params |= {"conversation_id": "talk-2"} if name == "mail/create" else {}
        params |= {"scope_id": "new"} if name in {"map/scopes/create", "mail/create_scope"} else {}
        params |= {"parent": "bob"} if name == "map/agents/spawn" else {}
        params |= {method.whose: "alice"} if method.whose else {}
        return params | INSIDE.get(name, {})


@pytest.fixture
def room() -> Iterator[Room]:
    with postroom.open("memory:") as room:
        yield room


def carried_out(room: Room, principal: Principal, method: type[Verb], params: dict[str, Any]) -> dict[str, Any]:
    """One call, as a daemon carries it out; its reply."""

    async def call() -> Any:
        executor = Executor(room.core)
        broker = Broker(executor)
        try:
            call = Told(method.declaration().name, params, request=checked(method, params))
            return await Caller(executor, broker, principal=principal).carry_out(call)
        except PostroomError as refused:
            return {"told": type(refused).__name__, "error": str(refused)}
        finally:
            broker.close()
            await executor.close()

    reply: dict[str, Any] = json.loads(encode(asyncio.run(call())))
    return reply


def outcome(name: str, who: Callable[[Room], Principal]) -> str:
    """done, or the name of an error; each in a room of its own, for much can be done once only."""
    with postroom.open("memory:") as room:
        filled = Filled(room)
        method = METHODS[name]
        reply = carried_out(room, who(room), method, filled.params_of(name, method))
    return str(reply["told"])


def holder(agent: str | None, *scopes: str) -> Callable[[Room], Principal]:
    """A caller with a token of its own."""

    def made(room: Room) -> Principal:
        text = perform(
            room.core, room.principal, tokens.CreateToken(agent=agent, scopes=list(scopes) or None)
        ).text
        return tokens.authenticate(room.core, text)

    return made


def revoked(agent: str | None) -> Callable[[Room], Principal]:
    def made(room: Room) -> Principal:
        principal = holder(agent)(room)
        perform(room.core, OWNER, tokens.RevokeToken(id=principal.token or ""))
        return principal

    return made


def beside(agent: str) -> Callable[[Room], Principal]:
    """A caller without a token, where some agent has one."""

    def made(room: Room) -> Principal:
        holder(agent)(room)
        return SOCKET

    return made


@pytest.mark.parametrize("name", METHODS)
def test_every_method_lets_in_the_callers_that_its_rule_names(name: str) -> None:
    rule, done = RULES[action_of(name)], NOT_DONE.get(name, "done")
    own = "NotAllowed" if rule == "operator" else done

    assert OF_AN_OPERATOR.get(name, done) == outcome(name, holder(None)), "an operator"
    assert done == outcome(name, lambda _room: SOCKET), "whoever opens the socket, where nobody has a token"
    assert own == outcome(name, holder("alice")), "its own agent"
    assert "NotAllowed" == outcome(name, revoked("alice")), "a token that is revoked"
    assert "NotAllowed" == outcome(name, revoked(None)), "an operator's that is revoked"
    result = outcome(name, holder("carl"))
    if rule == "own" and name not in CALLERS_OWN:
        assert "NotAllowed" == result, "another agent"
    elif rule == "own":
        assert result == OF_A_STRANGER.get(name, "done"), "another agent, as itself"
    else:
        assert result == own, "another agent"


@pytest.mark.parametrize("name", METHODS)
def test_a_right_is_asked_for_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of another program's protocol: what it performs asks, first for the right that its row names."""
    asked: list[tuple[str, str | None]] = []
    with postroom.open("memory:") as room:
        filled, method = Filled(room), METHODS[name]
        params = filled.params_of(name, method)

        def counted(principal: Principal, action: str, mailbox: str | None = None, *, reads: bool = False) -> None:
            asked.append((action, mailbox))
            authorize(principal, action, mailbox, reads=reads)

        monkeypatch.setattr("postroom.core.verb.authorize", counted)
        carried_out(room, room.principal, method, params)
    assert RULES[action_of(name)] == "anyone" or asked[0][0] == action_of(name)
    assert len(asked) == len(set(asked)), asked


@pytest.mark.parametrize("name", METHODS)
def test_who_is_nobody_does_what_anyone_may(name: str) -> None:
    expected = NOT_DONE.get(name, "done") if RULES[action_of(name)] == "anyone" else "NotAllowed"
    assert expected == outcome(name, lambda _room: Principal("nobody"))


@pytest.mark.parametrize("name", METHODS)
def test_a_visit_of_the_dashboard_looks_at_everything_and_writes_nothing(name: str) -> None:
    writes = METHODS[name].declaration().writes and RULES[action_of(name)] != "anyone"
    expected = "NotAllowed" if writes else NOT_DONE.get(name, "done")
    assert expected == outcome(name, lambda _room: VISIT), "a visit"
    sealed = outcome(name, lambda room: [beside("alice")(room), replace(VISIT, heeds_seals=True)][1])
    assert sealed == outcome(name, lambda _room: Principal("nobody")), "one that nobody proved to want"


@pytest.mark.parametrize("name", METHODS)
def test_what_anyone_may_do_writes_nothing_for_a_visit(name: str) -> None:
    with postroom.open("memory:") as room:
        filled = Filled(room)
        params = filled.params_of(name, METHODS[name])
        before = room.core.store.cursor()
        carried_out(room, VISIT, METHODS[name], params)
        assert before == room.core.store.cursor()


@pytest.mark.parametrize("name", METHODS)
def test_a_token_is_good_only_for_what_it_says(name: str) -> None:
    action, done = action_of(name), NOT_DONE.get(name, "done")
    if RULES[action] != "own":
        assert action not in NEEDS
        return
    for scope in SCOPES:
        expected = done if scope in ALONE_ENOUGH.get(name, NEEDS[action]) else "NotAllowed"
        assert expected == outcome(name, holder("alice", scope)), scope


# -- callers of the socket without a token


def ways_to_say(name: str) -> list[dict[str, Any]]:
    """Every word by which a method may be told that it is about alice."""
    words = {"agent_id", "participant_id", "from", "scope", "id", "name", "old", "to", "sender", "holder"}
    known = {one.name for one in parameters(METHODS[name]).values() if kind_of(one) in {"text", "any"}}
    ways: list[dict[str, Any]] = [{word: "alice"} for word in sorted(words & known)]
    if name == "action notify":
        ways += [{"event": {"type": kind, **at}} for kind in ("agent.spawn", "agent.done")
                 for at in ({"agentId": "alice"}, {"agent": {"agentId": "alice"}})]  # fmt: skip
    if name == "mail/create":
        ways += [way | {"initial_turn": {"content": "forged"}} for way in ways]
    return [{}, *ways]


def below(agent: str) -> Callable[[Room], Principal]:
    """A caller without a token, where alice has none but is the grandchild of an agent that has one."""

    def made(room: Room) -> Principal:
        room.mailbox(f"{agent}.kid").register(extra={"map": {"parent": agent}})
        room.mailbox("alice").register(scopes=["default"], extra={"map": {"parent": f"{agent}.kid"}})
        return beside(agent)(room)

    return made


@pytest.mark.parametrize("guard", [beside("alice"), below("boss")], ids=["its own token", "a token above it"])
@pytest.mark.parametrize("name", METHODS)
def test_nobody_without_a_token_acts_for_a_sealed_agent_or_reads_its_mail(
    name: str, guard: Callable[[Room], Principal]
) -> None:
    """Whatever it says, and whether it names a sealed agent, another one or nobody."""
    check_closed(name, guard)


@pytest.mark.parametrize("name", ["mail/check", "mail/send", "action check_inbox", "map/agents/update"])
def test_a_child_that_its_parents_token_does_not_guard_is_found_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: only the agent's own token counts."""
    monkeypatch.setattr(tokens, "_is_sealed", lambda _core, name, closed: name in closed)
    check_closed(name, beside("alice"))
    with pytest.raises(AssertionError, match=r"it reads her mail|it (may )?acts? for her"):
        check_closed(name, below("boss"))


def check_closed(name: str, guard: Callable[[Room], Principal]) -> None:
    method = METHODS[name]
    for way in ways_to_say(name):
        with postroom.open("memory:") as room:
            filled = Filled(room)
            guard(room)
            before = owned(room)
            plain = filled.params_of(name, method)
            named = {method.whose or "agent_id", "agent_id", "participant_id", "from"}
            bare = {word: value for word, value in plain.items() if word not in named}
            for message in (plain | way, bare | way, bare | way | {method.whose or "agent_id": "carl"}):
                reply = carried_out(room, SOCKET, method, message)
                assert WORD not in str(reply), f"it reads her mail: {message}"
                assert before == owned(room), f"it acts for her: {message}"
            if way and method.whose in way:
                result = carried_out(room, SOCKET, method, bare | way)["told"]
                assert "NotAllowed" == result, f"it may act for her: {way}"


def owned(room: Room) -> list[Any]:
    """What is alice's, and must not move by another's hand: her card, her mail, her seats, what she said."""
    alice, core = room.mailbox("alice"), room.core
    return [
        room.agent("alice").card,
        [(found.message.id, found.delivery) for found in core.store.find(Query(mailbox="alice"))
         if found.message.sender in {"alice", "bob"}],
        sorted(letter.id for letter in alice.sent()),
        core.store.records(CONVERSATION, TALK),
        alice.blocked(),
    ]  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_without_a_token_an_agent_that_has_none_is_spoken_for_as_before(name: str) -> None:
    """What names an agent works for those who are not sealed; what is about the room needs an operator."""
    method = METHODS[name]
    result = outcome(name, beside("zoe"))
    if method.whose is not None or name in INSIDE or RULES[action_of(name)] == "anyone":
        assert result == NOT_DONE.get(name, "done")
    else:
        assert result == "NotAllowed"


# -- the whole room

EVERYONE = ["mail/dead", "mail/dead_alerts", "mail/escalations", "mail/tasks"]


@pytest.fixture
def listed() -> Iterator[Room]:
    """A room in which alice and bob each have what these methods list."""
    with postroom.open("memory:", ring_tries=1, ring_gather=0) as room:
        for me in ("alice", "bob"):
            box, dan = room.mailbox(me), room.mailbox("dan")
            box.read(dan.send(me, "dead").id).reject("no")
            box.begin_alerts("exec")
            dan.send(me, "alert", priority="urgent")
            alert = box.next_alert("exec")
            assert isinstance(alert, Rung)
            assert 1 == box.alert_failed("exec", alert.ids, "exit 1")
            box.give_task("dan", "a task")
            box.escalate("a question", reason="blocked")
        yield room


def rows(room: Room, principal: Principal, name: str, **params: Any) -> list[Any]:
    """What a method lists for this caller."""
    reply = carried_out(room, principal, METHODS[name], params)
    assert "done" == reply["told"], reply
    found, *_ = (value for value in reply["result"].values() if isinstance(value, list))
    return list(found)


@pytest.mark.parametrize("name", EVERYONE)
def test_an_operator_that_names_no_agent_sees_the_whole_room(listed: Room, name: str) -> None:
    room = listed
    operator = holder(None)(room)
    alices, bobs = (rows(room, operator, name, agent_id=agent) for agent in ("alice", "bob"))
    whole = rows(room, operator, name)
    assert alices and bobs and alices != bobs
    assert all(row in whole for row in alices + bobs)
    assert len(whole) == len({encode(row) for row in alices + bobs}), "each row once"
    assert 1 == len(rows(room, operator, name, limit=1))


def test_an_operator_that_names_no_agent_sees_what_waits_for_anybody(listed: Room) -> None:
    operator = holder(None)(listed)
    by_agent = {me: rows(listed, operator, "mail/waiting", agent_id=me) for me in ("alice", "bob", "dan", "human")}
    whole = rows(listed, operator, "mail/waiting", limit=100)
    assert all(row["mailbox"] == me for me, found in by_agent.items() for row in found)
    assert {encode(row) for row in whole} == {encode(row) for found in by_agent.values() for row in found}
    assert by_agent["alice"] and by_agent["bob"] and 1 == len(rows(listed, operator, "mail/waiting", limit=1))


def test_the_board_of_the_room_is_the_operators_and_an_agents_is_its_own(listed: Room) -> None:
    def board(principal: Principal, **params: Any) -> Any:
        reply = carried_out(listed, principal, METHODS["mail/board"], params)
        return reply["result"] | {"at": None} if reply["told"] == "done" else reply["told"]

    alice = holder("alice")(listed)
    whole, own = board(holder(None)(listed)), board(alice)
    assert own == board(OWNER, agent_id="alice") and own["mailbox"] == "alice"
    assert {"alice"} == {one["asker"] for one in own["waits"]} == {one["mailbox"] for one in own["dead"]}
    assert (
        {"alice", "bob"} == {one["asker"] for one in whole["waits"]} == {one["mailbox"] for one in whole["dead"]}
    )
    assert all(one in whole["waits"] for one in own["waits"]) and whole["alerts"] != own["alerts"] != []
    assert "NotAllowed" == board(alice, agent_id="bob") == board(SOCKET) == board(holder("alice", "send")(listed))


@pytest.mark.parametrize("name", [*EVERYONE, "mail/waiting"])
def test_an_agent_that_names_no_agent_sees_its_own_mailbox_alone(listed: Room, name: str) -> None:
    room = listed
    alice = holder("alice")(room)
    assert rows(room, alice, name) == rows(room, OWNER, name, agent_id="alice")
    for caller in (Principal("nobody"), revoked("alice")(room), holder("alice", "manage")(room), SOCKET):
        assert "NotAllowed" == carried_out(room, caller, METHODS[name], {})["told"]


# -- what callers may learn of others

# Words that name a letter, a thread or a conversation of others, and one that is nowhere.
NAMING = (
    "id",
    "ids",
    "message_id",
    "message_ids",
    "thread",
    "conversation_id",
    "root_turn_id",
    "in_reply_to",
    "escalation_id",
)


def told_of(name: str, word: str, room: Room, filled: Filled, *, is_there: bool) -> tuple[str, str]:
    """What carl is told when he names something by this word: the outcome, and the words without the id."""
    method = METHODS[name]
    there = {"conversation_id": TALK, "root_turn_id": f"turn-{filled.turn}"}.get(word, filled.letter)
    id = there if is_there else "nowhere-1"
    message = filled.params_of(name, method) | {word: [id] if word in {"ids", "message_ids"} else id}
    message |= {method.whose: "carl"} if method.whose else {}
    reply = carried_out(room, carl(room), method, message)
    words = str(reply.get("error", ""))
    for known in (id, filled.letter, filled.task, filled.dead):
        words = words.replace(known, "ID")
    return str(reply["told"]), words


def carl(room: Room) -> Principal:
    return tokens.authenticate(room.core, perform(room.core, OWNER, tokens.CreateToken(agent="carl")).text)


@pytest.mark.parametrize(
    ("name", "word"),
    [(name, word) for name, row in METHODS.items() for word in parameters(row)
     if word in NAMING and name != "mail/create"],  # where an id that others have cannot be used
)  # fmt: skip
def test_what_others_have_and_what_nobody_has_look_the_same(name: str, word: str) -> None:
    received = []
    for is_there in (True, False):
        with postroom.open("memory:") as room:
            received.append(told_of(name, word, room, Filled(room), is_there=is_there))
    assert received[0] == received[1]


def test_an_id_that_others_have_is_refused_without_a_word_about_them(room: Room) -> None:
    filled, send = Filled(room), METHODS["mail/send"]
    params = {"agent_id": "carl", "to": "dan", "body": "x"}
    who = carl(room)
    own = carried_out(room, who, send, params)["result"]["id"]
    taken = [carried_out(room, who, send, params | {"body": "y", "letter_id": id}) for id in (filled.letter, own)]
    assert ["IdTaken"] * 2 == [one["told"] for one in taken]
    assert taken[0]["error"] == taken[1]["error"]  # the same words of an id of others and of its own
    assert all(word not in taken[0]["error"] for word in ("alice", "bob", WORD, filled.letter, own, "letter "))
    talks = [carried_out(room, who, METHODS["mail/create"], {"conversation_id": id, "agent_id": "carl"})
             for id in (TALK, "conv-" + "0" * 26)]  # fmt: skip
    assert ["IdTaken"] * 2 == [one["told"] for one in talks] and talks[0]["error"] == talks[1]["error"]
    assert "alice" not in talks[0]["error"]


@pytest.fixture
def busy(room: Room) -> tuple[Room, str]:
    """A room in which alice and bob exchange mail; the name of an agent that got one letter before."""
    Filled(room)
    room.mailbox("bob").send("carl", "for you")
    return room, "carl"


def cursor(room: Room, principal: Principal, **message: Any) -> int:
    result = carried_out(room, principal, METHODS["mail/cursor"], message)
    return int(result["result"]["cursor"].split(":")[2])


def check_cursor_tells_nothing_of_others(room: Room, agent: str) -> None:
    who = carl(room)
    first = cursor(room, who)
    for _ in range(3):
        room.mailbox("alice").send("bob", "between others")
    waited = {"agent_id": agent, "timeout": 0, "thread": "none"}
    result = carried_out(room, who, METHODS["mail/wait"], waited)["result"]["cursor"]
    assert (first, first) == (cursor(room, who), int(result.split(":")[2])), "it counts the mail of others"
    room.mailbox("bob").send(agent, "mine")
    assert first < cursor(room, who)


def test_a_cursor_counts_only_what_the_caller_may_see(busy: tuple[Room, str]) -> None:
    check_cursor_tells_nothing_of_others(*busy)


def test_a_cursor_with_the_rooms_own_number_is_found_out(
    busy: tuple[Room, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug."""
    monkeypatch.setattr(inbox, "current_cursor", lambda core, _caller: core.store.cursor())
    with pytest.raises(AssertionError, match="it counts the mail of others"):
        check_cursor_tells_nothing_of_others(*busy)


# -- tokens


def test_a_token_that_was_revoked_is_worth_nothing(room: Room) -> None:
    made = perform(room.core, room.principal, tokens.CreateToken(agent="alice"))
    text, token = made.text, made.token
    assert "alice" == tokens.authenticate(room.core, text).agent
    perform(room.core, room.principal, tokens.RevokeToken(id=token.id))
    for wrong in (text, "", "pr_", f"pr_{token.id}_x", text[:-1], text + "x", None, 7, "ž" * 40):
        with pytest.raises(NotAllowed, match="not valid"):
            tokens.authenticate(room.core, wrong)


def test_an_agent_stays_sealed_until_the_operator_says_otherwise(room: Room) -> None:
    token = perform(room.core, room.principal, tokens.CreateToken(agent="alice")).token
    check, message = METHODS["mail/check"], {"agent_id": "alice"}
    perform(room.core, room.principal, tokens.RevokeToken(id=token.id))
    assert "NotAllowed" == carried_out(room, SOCKET, check, message)["told"]
    perform(room.core, room.principal, tokens.Unseal(agent="alice"))
    assert "done" == carried_out(room, SOCKET, check, message)["told"]


def test_a_token_and_the_seal_are_those_of_a_renamed_agent(room: Room) -> None:
    room.mailbox("alice").register()
    text = perform(room.core, room.principal, tokens.CreateToken(agent="alice")).text
    rename(room, "alice", "alba")
    check = METHODS["mail/check"]

    assert "alba" == tokens.authenticate(room.core, text).agent
    assert "done" == carried_out(room, tokens.authenticate(room.core, text), check, {"agent_id": "alba"})["told"]
    for name in ("alice", "alba", "ALBA"):
        assert "NotAllowed" == carried_out(room, SOCKET, check, {"agent_id": name})["told"]
    later = perform(room.core, room.principal, tokens.CreateToken(agent="alice")).text  # by the name it had
    assert "alba" == tokens.authenticate(room.core, later).agent


# -- the tools of MCP


def tool_outcome(name: str, who: Callable[[Room], Principal]) -> str:
    """done, or the name of an error, of a tool that is asked about alice."""

    async def call(room: Room, principal: Principal, params: dict[str, Any]) -> None:
        executor = Executor(room.core)
        broker = Broker(executor)
        try:
            await PrincipalCalls(executor, broker).call(principal, PREFIX + name, params)
        finally:
            broker.close()
            await executor.close()

    with postroom.open("memory:") as room:
        filled = Filled(room)
        known: dict[str, Any] = {"to": ["bob"], "query": WORD, "messageIds": [filled.letter], "workCompleted": "x",
                 "threadTag": "tag", "action": "list", "agentId": "alice", "from": "alice"}  # fmt: skip
        known |= {"timeout": 0} | ({"to": "bob"} if name == "task" else {})
        params = {arg.name: known[arg.name] for arg in arguments(TOOLS[name]) if arg.name in known}
        try:
            asyncio.run(call(room, who(room), params))
        except PostroomError as error:
            return type(error).__name__
    return "done"


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_serves_its_own_agent_and_nobody_whose_token_is_revoked(name: str) -> None:
    is_own = any(arg.name == "agentId" for arg in arguments(TOOLS[name]))
    assert "done" == tool_outcome(name, holder("alice"))
    assert ("NotAllowed" if is_own else "done") == tool_outcome(name, holder("carl")), "another agent"
    assert "NotAllowed" == tool_outcome(name, revoked("alice"))
    assert "NotAllowed" == tool_outcome(name, revoked(None))


# -- what the rows must say, whatever the tables say

LOOKING = ("get", "list", "turns/list", "thread/list", "summary", "replay", "presence", "recent")
CHANGING = ("create", "close", "reopen", "join", "leave", "invite", "turn", "thread/create")


def test_a_token_for_sending_reads_no_conversation_and_one_for_reading_changes_none() -> None:
    assert {*MAIL} == {f"mail/{name}" for name in (*LOOKING, *CHANGING)}
    for name in LOOKING:
        assert "NotAllowed" == outcome(f"mail/{name}", holder("alice", "send"))
        assert "done" == outcome(f"mail/{name}", holder("alice", "read"))
    for name in (*(f"mail/{name}" for name in CHANGING), "action emit"):
        assert "NotAllowed" == outcome(name, holder("alice", "read", "work", "manage"))
        assert "done" == outcome(name, holder("alice", "send"))

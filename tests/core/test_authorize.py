"""Who may do what (G8): a matrix made from the table, and proof that every verb asks it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import postroom
from postroom import Handoff, Mailbox, NotAllowed, PostroomError, Room
from postroom.core import authorize, conversations, peers, tokens, webhooks
from postroom.core.authorize import NEEDS, OWNER, RULES, Principal, agent_principal
from postroom.core.authorize import authorize as authorize_authorize
from postroom.core.people import ListPeople
from postroom.core.tasks import Admit, TaskStep
from postroom.core.verb import declared_by, perform
from postroom.store.protocol import all_names
from tests import conversing
from tests.rooms import RoomFactory

SERVICE = Path(authorize.__file__).parent
BOB = agent_principal("bob")

# action -> every way to ask for it at a mailbox, by the public door
AT_A_MAILBOX: dict[str, list[Callable[[Mailbox], object]]] = {
    "send": [
        lambda box: box.send("ann", "x"),
        lambda box: box.ask("ann", "x", timeout=0),
        lambda box: box.send_many([postroom.draft("ann", "x")]),
        lambda box: box.reply("known", "x"),
        lambda box: box.forward("known", "zoe"),
        lambda box: box.broadcast("team", "x"),
        lambda box: box.handoff("ann", Handoff(work_completed="x")),
        lambda box: box.send_template("ann", "known"),
        lambda box: box.escalate("x", reason="blocked"),
        lambda box: box.give_task("ann", "x"),
    ],
    "check": [lambda box: box.check(), lambda box: box.digest()],
    "read": [lambda box: box.read("known")],
    "count": [lambda box: box.counts(), lambda box: box.stats()],
    "trace": [lambda box: box.trace("known")],
    "wait": [lambda box: box.wait(0), lambda box: box.room.wait([box.name], 0)],
    "ring": [
        lambda box: box.begin_alerts("exec"),
        lambda box: box.next_alert("exec"),
        lambda box: box.wait_for_alert("exec", 0),
        lambda box: box.alert_failed("exec", "known", "x"),
        lambda box: box.alert_done("exec", "known"),
        lambda box: box.dead_alerts(),
        lambda box: box.retry_alerts(),
    ],
    "show": [lambda box: box.mark_shown("known", "claude")],
    "claim": [
        lambda box: box.claim(),
        lambda box: box.claim(2),
        lambda box: list(box.work(timeout=0)),
        lambda box: box.serve(print, timeout=0),
    ],
    "settle": [lambda box: box.ack([]), lambda box: box.release([])],
    "dead": [lambda box: box.dead()],
    "revive": [lambda box: box.revive("known")],
    "purge": [lambda box: box.purge("known")],
    "block": [lambda box: box.block("zoe"), lambda box: box.unblock("zoe"), lambda box: box.blocked()],
    "escalations": [lambda box: box.escalations(), lambda box: box.resolve("known")],
    "waiting": [lambda box: box.waiting(), lambda box: box.board()],
    "unsend": [lambda box: box.unsend("known")],
    "threads": [
        lambda box: box.threads(),
        lambda box: box.thread("known"),
        lambda box: box.tagged("t"),
        lambda box: box.reply_chain("known"),
        lambda box: box.conversations(),
        lambda box: box.conversation("c"),
        lambda box: box.turns("c"),
    ],
    "task": [
        lambda box: box.tasks(),
        lambda box: box.task("known"),
        lambda box: perform(box.core, box.principal, TaskStep(agent_id=box.name, id="known", step="accept")),
        lambda box: perform(box.core, box.principal, Admit(agent_id=box.name, id="known")),
    ],
    "join": [
        lambda box: conversing.join(box.core, box.principal, "c", box.name),
        lambda box: conversing.leave(box.core, box.principal, "c", box.name),
    ],
    "search": [lambda box: box.search("x"), lambda box: box.search("x", ranked=True)],
    "register": [lambda box: box.register()],
    "heartbeat": [lambda box: box.heartbeat(), lambda box: box.leave()],
}
# What an agent does as itself: there is no mailbox to name.
AS_ONESELF: dict[str, list[Callable[[Room], object]]] = {
    "talks": [
        lambda room: list(conversing.conversations(room.core, room.principal, None, None)),
        lambda room: perform(room.core, room.principal, conversations.RecentLetters(limit=10)),
        lambda room: conversing.get_view(room.core, room.principal, "c"),
    ],
    "converse": [
        lambda room: conversing.close(room.core, room.principal, "c"),
        lambda room: conversing.reopen(room.core, room.principal, "c"),
        lambda room: conversing.invite(room.core, room.principal, "c", conversations.Guest(agent="dan")),
        lambda room: conversing.start_thread(room.core, room.principal, "c", "known"),
    ],
}
IN_THE_ROOM: dict[str, list[Callable[[Room], object]]] = {
    "agents": [lambda room: room.agents(), lambda room: room.agent("ann")],
    "tokens": [
        lambda room: perform(room.core, room.principal, tokens.ListTokens()),
        lambda room: perform(room.core, room.principal, tokens.CreateToken(agent="bob")),
        lambda room: perform(room.core, room.principal, tokens.RevokeToken(id="0")),
        lambda room: perform(room.core, room.principal, tokens.Unseal(agent="bob")),
    ],
    "webhooks": [
        lambda room: perform(room.core, room.principal, webhooks.ListWebhooks()),
        lambda room: perform(room.core, room.principal, webhooks.GetWebhook(id="x")),
        lambda room: perform(
            room.core, room.principal, webhooks.AddWebhook(url="https://hooks.example/", mailbox="ann")
        ),
        lambda room: perform(room.core, room.principal, webhooks.RotateWebhook(id="x")),
        lambda room: perform(room.core, room.principal, webhooks.SwitchWebhook(id="x", off="gone")),
        lambda room: perform(room.core, room.principal, webhooks.RemoveWebhook(id="x")),
    ],
    "people": [lambda room: perform(room.core, room.principal, ListPeople())],
    "peers": [
        lambda room: perform(room.core, room.principal, peers.ListPeers()),
        lambda room: perform(room.core, room.principal, peers.AddPeer(system="berlin", fields={})),
        lambda room: perform(room.core, room.principal, peers.GetPeer(system="berlin")),
        lambda room: perform(room.core, room.principal, peers.TrustPeer(system="berlin")),
        lambda room: perform(
            room.core,
            room.principal,
            peers.Mount(system="berlin", place="files:x", ours="here", room="memory:"),
        ),
        lambda room: perform(room.core, room.principal, peers.Unmount(system="berlin")),
        lambda room: perform(room.core, room.principal, peers.RotatePeer(system="berlin")),
        lambda room: perform(room.core, room.principal, peers.RemovePeer(system="berlin")),
    ],
    "room": [
        lambda room: room.mailboxes(),
        lambda room: room.quarantined(),
        lambda room: room.threads(),
        lambda room: room.search("x"),
        lambda room: room.thread("known"),
        lambda room: room.conversations(),
        lambda room: room.turns("c"),
        lambda room: room.dead(),
        lambda room: room.tasks(),
        lambda room: room.escalations(),
        lambda room: room.changes(room.cursor()),
        lambda room: room.stats(),
        lambda room: room.dead_alerts(),
        lambda room: room.retry_alerts(),
        lambda room: room.flow(),
        lambda room: room.trace("known"),
    ],
    "template": [lambda room: room.templates(), lambda room: room.template("known")],
    "templates": [lambda room: room.save_template("new"), lambda room: room.delete_template("known")],
    "janitor": [lambda room: room.sweep(), lambda room: room.archive(), lambda room: room.purge()],
    "doctor": [lambda room: room.doctor()],
    "backup": [lambda room: room.backup(Path(room.settings.file_root) / "copy.db")],
    "export": [lambda room: list(room.export())],
    "import": [lambda room: room.load([b'{"postroom": 1, "room": "x"}'])],
}
MAILBOX_CASES = [(a, n) for a, ways in AT_A_MAILBOX.items() for n in range(len(ways))]
ROOM_CASES = [(a, n) for a, ways in IN_THE_ROOM.items() for n in range(len(ways))]
ONESELF_CASES = [(a, n) for a, ways in AS_ONESELF.items() for n in range(len(ways))]


@pytest.fixture
def filled(factory: RoomFactory) -> RoomFactory:
    room = factory.room()
    for name in ("ann", "bob", "carol"):
        room.mailbox(name).register(scopes=["team"])
    factory.clock.advance(10_000)  # so that nobody holds a name
    room.mailbox("ann").send(["bob", "carol"], "x", id="known")
    room.save_template("known", body="x")
    return factory


def outcome(act: Callable[[], object]) -> str:
    """What a caller learns: nothing but "fine" and the name of an error."""
    try:
        act()
    except PostroomError as error:
        return type(error).__name__
    return "fine"


def test_the_matrix_covers_the_table() -> None:
    assert {*AT_A_MAILBOX, *AS_ONESELF, *IN_THE_ROOM} == set(RULES)
    assert {rule for action, rule in RULES.items() if action in {*AT_A_MAILBOX, *AS_ONESELF}} == {"own"}
    assert {rule for action, rule in RULES.items() if action in IN_THE_ROOM} == {"operator", "anyone"}


@pytest.mark.parametrize(("action", "way"), MAILBOX_CASES, ids=str)
def test_an_agent_reaches_its_own_mailbox_and_no_other(filled: RoomFactory, action: str, way: int) -> None:
    act, room = AT_A_MAILBOX[action][way], filled.room(BOB)
    assert outcome(lambda: act(room.mailbox("bob"))) != "NotAllowed"
    before = filled.store.cursor()
    errors = []
    for name in ("carol", "not-there"):  # forbidden and absent look the same
        with pytest.raises(NotAllowed) as refused:
            act(room.mailbox(name))
        errors.append(str(refused.value).replace(name, "NAME"))
    assert errors[0] == errors[1]
    assert filled.store.cursor() == before
    assert "not-there" not in all_names(filled.store)
    assert outcome(lambda: act(filled.room().mailbox("carol"))) != "NotAllowed"


@pytest.mark.parametrize(("action", "way"), ONESELF_CASES, ids=str)
def test_who_is_nobody_looks_at_no_conversation_and_changes_none(
    filled: RoomFactory, action: str, way: int
) -> None:
    act = AS_ONESELF[action][way]
    assert outcome(lambda: act(filled.room(BOB))) != "NotAllowed"
    assert outcome(lambda: act(filled.room())) != "NotAllowed"
    assert outcome(lambda: act(filled.room(Principal("nobody")))) == "NotAllowed"
    for scopes in map(frozenset, ({"read"}, {"send"}, {"manage"})):
        holder = Principal("agent:bob", agent="bob", scopes=scopes)
        is_heard = outcome(lambda: act(filled.room(holder))) != "NotAllowed"  # noqa: B023 - called at once
        assert is_heard == bool(scopes & NEEDS[action])


@pytest.mark.parametrize(("action", "way"), ROOM_CASES, ids=str)
def test_the_room_is_the_operators(filled: RoomFactory, action: str, way: int) -> None:
    act = IN_THE_ROOM[action][way]
    expected = "fine" if RULES[action] == "anyone" else "NotAllowed"
    assert outcome(lambda: act(filled.room(BOB))) == expected
    assert outcome(lambda: act(filled.room(Principal("nobody")))) == expected
    assert outcome(lambda: act(filled.room())) != "NotAllowed"


def test_nobody_waits_at_a_mailbox_that_is_not_theirs_beside_their_own(filled: RoomFactory) -> None:
    with pytest.raises(NotAllowed):
        filled.room(BOB).wait(["bob", "carol"], 0)
    assert filled.room().mailbox("bob").counts()["total"] == 1


def test_a_verb_without_a_row_is_refused() -> None:
    with pytest.raises(KeyError):
        authorize_authorize(OWNER, "burn", "bob")


def test_a_refusal_names_who_and_what() -> None:
    with pytest.raises(NotAllowed, match="agent:bob may not read in the mailbox 'carol'"):
        authorize_authorize(BOB, "read", "carol")
    with pytest.raises(NotAllowed, match="agent:bob may not export in the room"):
        authorize_authorize(BOB, "export")
    with pytest.raises(NotAllowed, match="agent:bob may not look at conversations in the room"):
        authorize_authorize(BOB, "talks")
    sender = Principal("agent:bob", agent="bob", scopes=frozenset({"send"}))
    with pytest.raises(NotAllowed, match="the token of agent:bob does not let it wait for mail"):
        authorize_authorize(sender, "wait", "bob")


def functions() -> dict[str, ast.FunctionDef]:
    found = {}
    for path in SERVICE.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                found[f"{path.stem}.{node.name}"] = node
    return found


def calls(node: ast.AST) -> set[str]:
    named = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    return {f.id if isinstance(f, ast.Name) else f.attr for f in named if isinstance(f, (ast.Name, ast.Attribute))}


def takes_a_caller(node: ast.FunctionDef) -> bool:
    return any(argument.arg == "caller" for argument in (*node.args.posonlyargs, *node.args.args))


def test_every_verb_that_takes_a_caller_asks_who_it_is() -> None:
    verbs = {name: node for name, node in functions().items() if takes_a_caller(node)}
    asking = {"authorize", "perform"}
    grown = True
    while grown:  # a verb may ask by way of another that takes the caller
        more = {n.rpartition(".")[2] for n, node in verbs.items() if calls(node) & asking} - asking
        asking, grown = asking | more, bool(more)
    silent = [name for name in verbs if name.rpartition(".")[2] not in asking]
    assert "messages.prepare_all" in verbs
    assert silent == []


def test_every_row_of_the_table_is_asked_for() -> None:
    texts = [p.read_text(encoding="utf-8") for p in (*SERVICE.glob("*.py"), SERVICE.parent / "room.py")]
    request = set()
    for tree in map(ast.parse, texts):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and "authorize" in ast.unparse(node.func) and len(node.args) > 1:
                words = {n.value for n in ast.walk(node.args[1]) if isinstance(n, ast.Constant)}
                request |= {word for word in words if isinstance(word, str)}
    request |= {declared.action for declared in declared_by.values()}
    assert request == set(RULES)

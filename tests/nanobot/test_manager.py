"""The design's manager, method by method, on real files."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import HopsSpent, Invalid, LeaseLost, LoopDetected, Missing, NotAllowed, TooLarge
from postroom.model.peer import Peer
from postroom.nanobot import MailboxManager
from postroom.store.protocol import outgoing
from tests.core.peering import know_peer
from tests.nanobot.folder import registry

TEXT = {"content": {"parts": [{"type": "text", "text": "hello"}]}}
FIELDS = "agent_id description capabilities status allow_from max_concurrent_tasks current_tasks".split()


def inbox(root: Path, agent: str) -> list[Path]:
    return sorted((root / agent / "inbox").glob("*.msg.json"))


# -- agents


def test_register_writes_an_entry_in_the_designs_form_and_makes_the_folders(
    manager: MailboxManager, root: Path
) -> None:
    manager.register("coder", {"agent_id": "coder", "description": "负责代码", "capabilities": ["review"]})

    text = (root / "_registry.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    assert "负责代码" in text
    assert [*FIELDS, "registered_at", "last_heartbeat"] == list(registry(root)["coder"])
    assert (root / "coder" / "inbox").is_dir() and (root / "coder" / "processed").is_dir()
    assert 0o700 == (root / "coder").stat().st_mode & 0o777


def test_register_overwrites_and_keeps_what_the_design_has_no_word_for(
    manager: MailboxManager, root: Path
) -> None:
    manager.register("coder", {"status": "idle", "team": "red"})
    manager.register("coder", {"status": "busy", "mood": {"now": "fine"}, "postroom": {"program": "nano"}})

    entry = registry(root)["coder"]
    assert ("busy", {"now": "fine"}, {"program": "nano"}) == (entry["status"], entry["mood"], entry["postroom"])
    assert "team" not in entry
    assert entry == manager.get_agent("coder")


def test_what_is_registered_through_the_room_stands_in_the_same_registry(
    manager: MailboxManager, root: Path
) -> None:
    manager.room.mailbox("coder").register(description="d", scopes=["team"], metadata={"a": 1})

    assert {"scopes": ["team"], "metadata": {"a": 1}} == registry(root)["coder"]["postroom"]
    manager.room.mailbox("coder").heartbeat(current_tasks=["t"])
    assert ("busy", ["t"]) == (registry(root)["coder"]["status"], registry(root)["coder"]["current_tasks"])


def test_update_status_sets_a_status_and_keeps_tasks_that_are_not_named(
    manager: MailboxManager, root: Path
) -> None:
    manager.register("coder", {})
    manager.update_status("coder", "busy", current_tasks=["task_1"])
    manager.update_status("coder", "busy")
    assert ["task_1"] == registry(root)["coder"]["current_tasks"]

    manager.update_status("coder", "napping", [])
    assert "napping" == registry(root)["coder"]["status"]
    assert ["coder"] == [agent["agent_id"] for agent in manager.list_online_agents()]

    manager.update_status("coder", "offline")
    assert "offline" == registry(root)["coder"]["status"]
    assert [] == manager.list_online_agents()
    manager.heartbeat("coder")
    assert ["coder"] == [agent["agent_id"] for agent in manager.list_online_agents()]


def test_an_agent_that_the_registry_lost_comes_back_with_its_next_heartbeat(
    manager: MailboxManager, root: Path
) -> None:
    manager.register("coder", {"description": "d"})
    for record in ("card", "beat"):
        _forget(manager, record, "coder")
    assert manager.get_agent("coder") is None

    manager.heartbeat("coder")
    manager.heartbeat("newcomer")

    assert "d" == registry(root)["coder"]["description"]
    assert "idle" == registry(root)["newcomer"]["status"]


def _forget(manager: MailboxManager, kind: str, key: str) -> None:
    from postroom.model.record import Record
    from postroom.store.protocol import Put

    store = manager.room.core.store
    held = store.records(kind, key)[0]
    store.commit([Put(record=Record(kind=kind, key=key, value=None, revision=held.revision))])


def test_a_silent_agent_is_offline(manager: MailboxManager) -> None:
    manager.register("coder", {})
    manager.register("quiet", {})
    held = manager.room.core.store.records("beat", "quiet")[0]
    _age(manager, held, 61)

    assert ["coder"] == [agent["agent_id"] for agent in manager.list_online_agents()]
    quiet = manager.get_agent("quiet")
    assert quiet is not None and "offline" == quiet["status"]


def _age(manager: MailboxManager, held: Any, seconds: float) -> None:
    from msgspec.structs import replace

    from postroom.store.protocol import Put

    older = replace(held, value=held.value | {"steady": held.value["steady"] - seconds})
    manager.room.core.store.commit([Put(record=older, durable=False)])


@pytest.mark.parametrize("name", ["", "../x", "/abs", "a/../b", "_registry.json", ".hidden", "a\0b", "a b", None])
def test_no_name_is_a_path_or_the_registry(manager: MailboxManager, name: Any, root: Path) -> None:
    for call in (
        lambda: manager.register(name, {}),
        lambda: manager.heartbeat(name),
        lambda: manager.update_status(name, "idle"),
        lambda: manager.send(name, "b", {}),
        lambda: manager.send("a", name, {}),
        lambda: manager.poll(name),
        lambda: manager.mark_processed(name, "1_a.msg.json"),
        lambda: manager.get_agent(name),
    ):
        with pytest.raises(Invalid):
            call()
    assert [".postroom"] == [path.name for path in root.iterdir()]


# -- mail


def test_a_mail_to_a_system_that_nobody_leads_to_is_refused(manager: MailboxManager, root: Path) -> None:
    with pytest.raises(Missing, match="no route to the system 'far'"):
        manager.send("planner", "coder@far", {**TEXT})
    assert not (root / "coder@far").exists()


def test_send_fills_in_what_is_missing_and_writes_the_designs_fields(manager: MailboxManager, root: Path) -> None:
    msg: dict[str, Any] = {"type": "task", "task": {"id": "t1", "state": "pending"}, **TEXT, "mood": "fine"}

    manager.send("researcher", "coder", msg)

    (path,) = inbox(root, "coder")
    mail = json.loads(path.read_text(encoding="utf-8"))
    assert mail.items() >= msg.items()
    assert f"{mail['id']}.msg.json" == f"msg_{path.name}"
    assert ("researcher", "coder") == (mail["from"], mail["to"])
    assert (3, ["researcher"], None, {}) == (mail["ttl"], mail["trace"], mail["reply_to"], mail["metadata"])
    assert 0o600 == path.stat().st_mode & 0o777


def test_two_mails_of_one_moment_are_two_files(
    manager: MailboxManager, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_750_000_000_000_000_000)
    other = MailboxManager(root)
    for place in range(10):
        (manager, other)[place % 2].send("a", "coder", {**TEXT, "mark": place})

    assert 10 == len(inbox(root, "coder"))
    assert list(range(10)) == [mail["mark"] for mail in manager.poll("coder")]


def test_a_clock_that_steps_back_changes_neither_order_nor_number(
    manager: MailboxManager, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(6):
        monkeypatch.setattr(time, "time_ns", lambda place=place: (1_750_000_000 - 60 * place) * 1_000_000_000)
        with MailboxManager(root) as fresh:  # a new process knows no earlier time
            fresh.send("a", "coder", {**TEXT, "mark": place})

    assert list(range(6)) == [mail["mark"] for mail in manager.poll("coder")]


def test_poll_gives_the_files_as_they_are_and_consumes_nothing(manager: MailboxManager, root: Path) -> None:
    mail = {"id": "m1", "from": "x", "odd": [1, {"a": None}], "timestamp": "2026-04-26T10:00:00+00:00"}
    path = root / "coder" / "inbox" / "1777197600_x.msg.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(mail), encoding="utf-8")

    assert [mail | {"_filename": path.name}] == manager.poll("coder") == manager.poll("coder")


def test_mark_processed_moves_a_mail_once(manager: MailboxManager, root: Path) -> None:
    manager.send("a", "coder", {**TEXT})
    manager.send("a", "coder", {**TEXT})
    first, second = (mail["_filename"] for mail in manager.poll("coder"))

    manager.mark_processed("coder", first)
    manager.mark_processed("coder", first)
    manager.mark_processed("coder", "1_nobody.msg.json")

    assert [first] == [path.name for path in (root / "coder" / "processed").iterdir()]
    assert [second] == [mail["_filename"] for mail in manager.poll("coder")]
    for name in ("../x.msg.json", "x", "a/b.msg.json", ".x.msg.json", "x.msg.json\0", None):
        with pytest.raises(Invalid):
            manager.mark_processed("coder", name)  # type: ignore[arg-type]


def test_what_a_worker_holds_is_not_polled_and_not_taken_from_it(manager: MailboxManager) -> None:
    manager.send("a", "coder", {**TEXT})
    (mail,) = manager.poll("coder")
    work = manager.room.mailbox("coder").claim()
    assert work is not None

    assert [] == manager.poll("coder")
    with pytest.raises(LeaseLost):
        manager.mark_processed("coder", mail["_filename"])
    work.release()
    assert 1 == len(manager.poll("coder"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"from": "boss"},
        {"to": "somebody"},
        {"content": 5},
        {"content": {"parts": "x"}},
        {"content": {"parts": [{"type": "odd"}]}},
        {"callback": "feishu"},
        {"task": "t1"},
        {"task": {"id": "t1", "title": "lost"}},
        {"trace": ["a", "../b"]},
        {"ttl": "3"},
        {"timestamp": "yesterday"},
        {"id": "a/b"},
        {"type": "bounce"},
        {"metadata": []},
    ],
    ids=str,
)
def test_mail_that_would_hurt_a_reader_is_refused_and_nothing_is_written(
    manager: MailboxManager, root: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(Invalid):
        manager.send("a", "coder", TEXT | wrong)
    assert not (root / "coder").exists()


def test_mail_that_is_too_large_or_not_allowed_is_refused(manager: MailboxManager, root: Path) -> None:
    manager.register("coder", {"allow_from": ["friend"]})

    with pytest.raises(NotAllowed):
        manager.send("stranger", "coder", {**TEXT})
    with pytest.raises(TooLarge):
        manager.send("friend", "coder", {"content": {"parts": [{"type": "text", "text": "x" * 2_000_000}]}})
    manager.send("friend", "coder", {**TEXT})
    assert 1 == len(inbox(root, "coder"))


def test_an_answer_is_in_the_thread_of_what_it_answers(manager: MailboxManager) -> None:
    question = {**TEXT}
    manager.send("a", "b", question)
    manager.send("b", "a", {**TEXT, "reply_to": question["id"]})
    manager.send("b", "a", {**TEXT, "reply_to": "nobody-knows"})

    assert 2 == len(manager.room.thread(str(question["id"])))
    assert 2 == len(manager.poll("a"))


def test_a_polled_mail_may_be_passed_on(manager: MailboxManager) -> None:
    manager.send("a", "b", {**TEXT})
    (mail,) = manager.poll("b")
    passed = {name: value for name, value in mail.items() if name not in {"id", "from", "to", "timestamp"}}
    manager.send("b", "c", passed)

    assert "hello" == manager.poll("c")[0]["content"]["parts"][0]["text"]


def passed_on(mail: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A polled mail, as a program passes it on."""
    kept = {name: value for name, value in mail.items() if name not in {"id", "from", "to", "timestamp"}}
    return kept | more


@pytest.mark.parametrize("by_itself", [True, False])
def test_the_longest_chain_is_from_a_to_d_whatever_those_who_pass_it_on_write(
    manager: MailboxManager, *, by_itself: bool
) -> None:
    manager.send("a", "b", {**TEXT, "ttl": 1000})
    for sender, to, ttl in (("b", "c", 2), ("c", "d", 1)):
        (mail,) = manager.poll(sender)
        counts = {"ttl": mail["ttl"] - 1, "trace": [*mail["trace"], sender]} if by_itself else {}
        manager.send(sender, to, passed_on(mail, **counts))
        assert manager.poll(to)[0]["ttl"] == ttl
    (mail,) = manager.poll("d")
    assert mail["trace"] == ["a", "b", "c"]
    for wrong in ({}, {"ttl": 3}, {"ttl": 3, "trace": [*mail["trace"], "d"]}):
        with pytest.raises(HopsSpent) as spent:
            manager.send("d", "e", passed_on(mail, **wrong))
        assert spent.value.field == "ttl"
    assert manager.poll("e") == []


def test_a_mail_goes_to_nobody_twice_but_may_be_answered(manager: MailboxManager) -> None:
    manager.send("a", "b", {**TEXT})
    (mail,) = manager.poll("b")
    with pytest.raises(LoopDetected):
        manager.send("b", "a", passed_on(mail))
    manager.send("b", "c", {**TEXT, "reply_to": mail["id"]})  # c does not have it: that is a relay
    assert (2, ["a", "b"]) == tuple(manager.poll("c")[0][name] for name in ("ttl", "trace"))
    manager.send("b", "a", passed_on(mail, reply_to=mail["id"]))
    manager.send("b", "a", passed_on(mail, type="task_update", task={"id": "t1", "state": "working"}))
    assert [(3, ["b"])] * 2 == [(answer["ttl"], answer["trace"]) for answer in manager.poll("a")]


def test_mail_to_another_system_goes_only_where_a_peer_leads(manager: MailboxManager) -> None:
    know_peer(manager.room, Peer(system="far"))
    manager.send("coder", "bob@far", TEXT | {"id": "one"})
    know_peer(manager.room, Peer(system="far", trusted=False))

    with pytest.raises(Missing, match="no route to the system 'nowhere'"):
        manager.send("coder", "bob@nowhere", {**TEXT})
    with pytest.raises(NotAllowed, match="'far' is not trusted"):
        manager.send("coder", "bob@far", {**TEXT})
    assert outgoing(manager.room.core.store) == {"bob@far": 1}

"""The keys of people: how they come to a room, who is told, and what they are worth in other rooms and folders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import postroom
from postroom import Invalid, Mailbox, Message, NotAllowed, PostroomError, Room
from postroom.core import arrivals, people, verb
from postroom.core import key_file as key_files
from postroom.core.arrivals import accept
from postroom.core.authorize import NOTIFIER, OWNER, PROVEN
from postroom.core.key_file import OLD, KeyFile, make_key, public_text
from postroom.core.people import AddPerson, ListPeople, RemovePerson
from postroom.core.proof import room_id
from postroom.core.verb import perform
from postroom.formats.federation import decode_envelope, encode_envelope, envelope_for
from postroom.model.message import KEY_CHANGED, Recipient, origin_of
from postroom.model.names import parse_address
from postroom.model.peer import Envelope, Peer
from postroom.model.person import key_id
from postroom.model.record import PERSON
from postroom.store.files.connection import FileConnection
from postroom.store.protocol import Put
from tests.core.peering import know_peer
from tests.letters import NOW
from tests.people import key_file, person, signing
from tests.rooms import RoomFactory, texts


def listed(room: Room) -> list[tuple[str, str, bool]]:
    return [(one.person, one.added_by, one.is_live) for one in perform(room.core, OWNER, ListPeople()).people]


def proven(room: Room, name: str = "bob") -> list[bool]:
    return [letter.message.proof is not None for letter in room.mailbox(name).check(unread_only=False)]


def test_the_first_key_is_believed_and_everybody_sees_it(room: Room) -> None:
    assert listed(room) == [] and room_id(room.core) == ""
    person(room).send("bob", "hello")
    assert listed(room) == [("human", "first use", True)]
    assert proven(room) == [True]
    stranger = signing(room, "stranger").mailbox("human")
    with pytest.raises(NotAllowed, match="is no key of human in this room"):
        stranger.send("bob", "me, too")


def test_another_key_needs_a_key_of_the_room_and_every_agent_is_told(room: Room) -> None:
    person(room).send("bob", "hello")
    room.mailbox("ann").register()
    new = key_file("laptop").public()
    for caller in (room, signing(room, "laptop")):
        with pytest.raises(NotAllowed):
            perform(caller.core, caller.principal, AddPerson(person="human", key=new))
    perform(room.core, signing(room).principal, AddPerson(person="user", key=new))
    (told,) = room.mailbox("ann").check(kinds=KEY_CHANGED)
    assert told.sender == "postmaster" and key_id(new) in told.text and "a key of the room" in told.text
    signing(room, "laptop").mailbox("human").send("bob", "from there")
    assert proven(room)[-1]
    with pytest.raises(Invalid, match="twice"):
        perform(room.core, signing(room).principal, AddPerson(person="human", key=new))
    with pytest.raises(NotAllowed):
        perform(room.core, OWNER, RemovePerson(id=key_id(new)))
    perform(room.core, signing(room).principal, RemovePerson(id=key_id(new)))
    with pytest.raises(NotAllowed):
        signing(room, "laptop").mailbox("human").send("bob", "too late")
    assert sorted(live for *_, live in listed(room)) == [False, True]
    with pytest.raises(PostroomError, match="no key"):
        perform(room.core, signing(room).principal, RemovePerson(id=key_id(new)))


def test_a_lost_key_is_replaced_without_proof_and_every_agent_is_told_so(room: Room) -> None:
    person(room).send("bob", "hello")
    new = key_file("found-again").public()
    perform(room.core, OWNER, AddPerson(person="human", key=new, lost=True))
    (told,) = room.mailbox("bob").check(kinds=KEY_CHANGED)
    assert "a lost key" in told.text and "Nobody proved that" in told.text
    with pytest.raises(NotAllowed):
        person(room).send("bob", "the old key is gone")
    signing(room, "found-again").mailbox("human").send("bob", "here again")
    assert {*listed(room)} == {("human", "first use", False), ("human", "key lost", True)}


def test_what_a_key_signed_that_was_falsely_added_as_lost_stays_proven(room: Room) -> None:
    person(room).send("bob", "hello")
    false = key_file("thief").public()
    perform(room.core, OWNER, AddPerson(person="human", key=false, lost=True))
    signing(room, "thief").mailbox("human").send("bob", "pay me")
    perform(room.core, signing(room).principal, RemovePerson(id=key_id(false)))
    letters = [one for one in room.mailbox("bob").check(unread_only=False) if one.sender == "human"]
    assert [origin_of(one.message) for one in letters] == ["human (the user, proven)"] * 2, "in docs/people.md"
    told = room.mailbox("bob").check(kinds=KEY_CHANGED, unread_only=False)[-1]
    assert f"Do not rely on what {key_id(false)} signed" in told.text
    with pytest.raises(NotAllowed):
        signing(room, "thief").mailbox("human").send("bob", "more")


@pytest.mark.parametrize("is_checked", [True, False])
def test_no_caller_without_the_key_takes_the_alerts_of_a_person(
    factory: RoomFactory, is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_checked:  # the planted twin
        monkeypatch.setattr(verb, "PROVEN", PROVEN - {"ring"})
    room = factory.room(ring_gather=0)
    taker, watch = room.mailbox("human"), room.acting_as(NOTIFIER).mailbox("human")
    watch.begin_alerts("exec")
    letter = room.mailbox("bob").send("human", "Look.", priority="urgent")
    taken: tuple[Callable[[], object], ...] = (
        lambda: taker.begin_alerts("exec"),
        lambda: taker.next_alert("exec", within=60),
        lambda: taker.wait_for_alert("exec", timeout=0.1),
        lambda: taker.alert_done("exec", letter.id),
        lambda: taker.alert_failed("exec", letter.id, "no desktop"),
    )
    for take in taken:
        with pytest.raises(NotAllowed, match="with a person's key") if is_checked else nullcontext():
            take()
    assert bool(watch.next_alert("exec")) is is_checked
    person(room).begin_alerts("lamp", backlog=True)  # with the key, a program of the person's own may
    with pytest.raises(NotAllowed, match="with a person's key"):
        room.acting_as(NOTIFIER).mailbox("human").claim()  # what gives alerts settles nothing


def test_whom_no_setting_names_is_no_person(factory: RoomFactory) -> None:
    room = factory.room(people="dana, erin")
    person(room).send("bob", "x")
    with pytest.raises(Invalid, match="is no person here"):
        perform(room.core, signing(room).principal, AddPerson(person="zoe", key=key_file("zoe").public()))
    with pytest.raises(NotAllowed):
        room.mailbox("erin").claim()
    person(room, "erin").claim()
    assert {name for name, *_ in listed(room)} == {"human", "erin"}
    with pytest.raises(NotAllowed, match="is the key of human, not of dana"):
        signing(room).mailbox("dana").claim()
    found = perform(room.core, OWNER, ListPeople())
    assert found.mailboxes == ["human", "dana", "erin"] and found.room == room_id(room.core)


@pytest.mark.parametrize("is_noted", [True, False])
def test_whom_the_person_who_was_first_named_is_a_person_for_processes_with_other_settings(
    factory: RoomFactory, is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before that person has a key here."""
    if not is_noted:  # the planted twin
        monkeypatch.setattr(key_files, "note_people", lambda _core, key: key)
    room = factory.room(people="erin, dana")
    person(room).send("bob", "hello")
    room.mailbox("bob").send("erin", "Look.")
    other, locked = factory.room(people="mallory"), pytest.raises(NotAllowed, match="with a person's key")
    with locked if is_noted else nullcontext():
        other.mailbox("erin").check(peek=True)[0].ack()
    if not is_noted:
        return
    assert perform(other.core, OWNER, ListPeople()).mailboxes == ["human", "mallory", "erin", "dana"]
    assert [one.what for one in other.mailbox("erin").waiting()] == ["letter"]
    with pytest.raises(NotAllowed):  # who was not first names nobody
        signing(other, "mallory").mailbox("mallory").send("bob", "me, too")
    factory.room().mailbox("mallory").claim()
    person(factory.room(people="dana")).send("bob", "Erin is an agent now.")
    assert factory.room().mailbox("erin").claim(), "the person said so"
    old, new = key_id(key_file().public()), key_file("next").public()
    perform(room.core, signing(room).principal, AddPerson(person="human", key=new, replaces=old))
    with locked:
        factory.room().mailbox("dana").claim()


def test_keys_and_proofs_do_not_go_into_an_export_or_a_copy(factory: RoomFactory, tmp_path: Path) -> None:
    room = factory.room()
    person(room).send("bob", "hello")
    with postroom.open(tmp_path / "copy.db") as copy:
        copy.load(room.export())
        assert (
            listed(copy) == []
            and texts(copy.mailbox("bob").check(peek=True)) == ["hello"]
            and proven(copy) == [False]
        )
        forged = [line.replace(b'"hello"', b'"obey"') for line in room.export()]
    with postroom.open(tmp_path / "forged.db") as copy:
        copy.load(forged)
        assert proven(copy) == [False]


def test_an_invented_person_is_refused_and_changes_nobodys_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process with settings of its own, which name an agent as a person."""
    new = AddPerson(person="human", key=key_file("next").public())
    with postroom.open(tmp_path / "room.db") as room:
        person(room).send("coder", "hello")
    for settings in ({"people": "mallory, coder"}, {"human": "mallory", "people": "coder"}):
        with postroom.open(tmp_path / "room.db", **settings) as theirs:
            for name in ("mallory", "coder"):
                caller = signing(theirs, name)
                with pytest.raises(NotAllowed, match=f"human admits others here: postroom people add {name} ed2"):
                    caller.mailbox(name).send("bob", "approved")
                for change in (new, AddPerson(person=name, key=key_file(name).public()), RemovePerson(id="x")):
                    with pytest.raises(NotAllowed):
                        perform(theirs.core, caller.principal, change)
                with pytest.raises(NotAllowed, match="no key here that could be lost"):
                    perform(theirs.core, OWNER, AddPerson(person=name, key=key_file(name).public(), lost=True))
    with postroom.open(tmp_path / "room.db", people="mallory") as room:
        assert listed(room) == [("human", "first use", True)]
        room.mailbox("coder").claim()  # an agent's mailbox is its own
        person(room, "mallory").send("bob", "The human admitted me.")
        with pytest.raises(NotAllowed, match="is no key of human"):
            perform(room.core, signing(room, "mallory").principal, new)
        with pytest.raises(NotAllowed, match="is no key of mallory"):
            perform(
                room.core, signing(room).principal, AddPerson(person="mallory", key=key_file("again").public())
            )
        monkeypatch.setattr(people, "_check_signer", lambda *_: None)  # the planted twin
        perform(room.core, signing(room, "mallory").principal, new)
        assert ("human", "signed", True) in listed(room)


def test_a_name_whose_last_key_was_removed_is_no_person_without_the_settings(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db", people="coder") as room:
        key = key_file("coder").public()
        person(room, "coder").claim()
        (held,) = room.core.store.records(PERSON, key_id(key))
        gone = replace(held, value={**held.value, "removed_at": room.core.now().wall})
        room.core.store.commit([Put(record=gone)])
        with pytest.raises(NotAllowed):
            room.mailbox("coder").claim()
    with postroom.open(tmp_path / "room.db") as room:
        person(room).send("bob", "I name nobody here.")
    with postroom.open(tmp_path / "room.db") as room:
        room.mailbox("coder").claim()


@pytest.mark.parametrize("again", ["replace", "lost", "beside"])
def test_a_key_in_place_of_a_lost_one_cannot_make_itself_permanent(
    room: Room, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    person(room).send("bob", "hello")
    taken, next = key_file("taken"), key_file(f"next-{again}").public()
    perform(room.core, OWNER, AddPerson(person="human", key=taken.public(), lost=True))
    thief = signing(room, "taken").principal
    change = AddPerson(
        person="human",
        key=next,
        lost=again == "lost",
        replaces=key_id(taken.public()) if again == "replace" else "",
    )
    with pytest.raises(NotAllowed, match="possible from"):
        perform(room.core, thief, change)
    perform(room.core, signing(room).principal, RemovePerson(id=key_id(taken.public())))
    with pytest.raises(NotAllowed):
        perform(room.core, thief, change)
    assert {*listed(room)} == {("human", "first use", True), ("human", "key lost", False)}
    person(room).send("bob", "It is me.")
    monkeypatch.setattr(people, "TAKE_BACK", timedelta(days=-1))  # the planted twin
    perform(room.core, OWNER, AddPerson(person="human", key=key_file("later").public(), lost=True))
    change = replace(change, replaces="")
    perform(room.core, signing(room, "later").principal, change)
    assert key_id(next) in [one.id for one in perform(room.core, OWNER, ListPeople()).people if one.is_live]


# -- the file of the key


def test_the_key_is_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "human.key"
    told: list[str] = []
    with postroom.open("memory:") as room:
        key = KeyFile(str(path), at_terminal=True, tell=told.append)
        room.acting_as(replace(OWNER, signer=key)).mailbox("human").send("bob", "x")
        assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o077 == 0
        assert str(path) in told[0] and "known in this room" in told[1]
        path.chmod(0o644)
        with pytest.raises(NotAllowed, match="others may read"):
            KeyFile(str(path)).key_for(room.core, "human")
        path.chmod(0o600)
        assert KeyFile(str(path)).key_for(room.core, "human").person == "human"
        link = tmp_path / "link"
        link.symlink_to(path)
        with pytest.raises(NotAllowed, match="cannot be read"):
            KeyFile(str(link)).key_for(room.core, "human")
        path.write_text("no key")
        with pytest.raises(NotAllowed, match="is no private key"):
            KeyFile(str(path)).key_for(room.core, "human")


@pytest.mark.parametrize("is_checked", [True, False])
def test_what_is_no_file_of_a_key_is_refused_with_its_path(
    tmp_path: Path, is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_checked:  # the planted twin
        monkeypatch.setattr(key_files, "S_ISREG", lambda _mode: True)
    pipe, ssh, path = tmp_path / "pipe", tmp_path / "ssh", str(tmp_path / "k")
    os.mkfifo(pipe, 0o600)
    with pytest.raises(NotAllowed, match=f"{pipe} is no regular file" if is_checked else "is no private key"):
        KeyFile(str(pipe)).public()
    if is_checked:
        with pytest.raises(NotAllowed, match=f"{tmp_path} is no regular file"):
            KeyFile(str(tmp_path)).public()
    ssh.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    ssh.chmod(0o600)
    with pytest.raises(NotAllowed, match=r"is no private key.*an OpenSSH key is none"):
        KeyFile(str(ssh)).public()
    make_key(path, "open sesame")

    def ended(_prompt: str) -> str:
        raise EOFError

    with pytest.raises(NotAllowed, match="no passphrase was typed"):
        KeyFile(path, ask=ended).public()


@pytest.mark.parametrize("is_checked", [True, False])
@pytest.mark.parametrize("place", ["project/keys", "project/src/deep", "folders/bob", "beside"])
def test_a_key_inside_a_project_or_a_room_is_refused(
    tmp_path: Path, place: str, is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_checked:  # the planted twin
        monkeypatch.setattr(key_files, "check_outside", lambda _path: None)
    path, outside = tmp_path / place / "human.key", tmp_path / "home" / "human.key"
    (tmp_path / "project" / ".postroom").mkdir(parents=True)
    postroom.open(f"files:{tmp_path}/folders?layout=swarm").close()
    postroom.open(tmp_path / "beside" / "room.db").close()
    make_key(str(path), "")
    make_key(str(outside), "")
    for key in (KeyFile(str(path)), KeyFile(str(path) + "2", at_terminal=True)):
        refused = pytest.raises(NotAllowed, match=r"lies in the folder of .*POSTROOM_HUMAN_KEY names it")
        with refused if is_checked else nullcontext():
            key.public()
    assert Path(str(path) + "2").exists() is not is_checked, "none is made there, either"
    linked = tmp_path / "linked"
    linked.symlink_to(path.parent)
    with pytest.raises(NotAllowed, match="lies in") if is_checked else nullcontext():
        KeyFile(str(linked / "human.key")).public()
    assert KeyFile(str(outside)).public()
    monkeypatch.setenv("HOME", str(path.parent))  # a project around all that the user has
    assert KeyFile(str(path)).public()


def test_a_broken_file_of_the_key_before_does_not_stop_the_first_use(tmp_path: Path) -> None:
    path = str(tmp_path / "k")
    Path(path + OLD).write_text("broken")
    Path(path + OLD).chmod(0o600)
    key = KeyFile(path, at_terminal=True)
    with postroom.open("memory:") as room:
        assert key.key_for(room.core, "human").added_by == "first use"
    with postroom.open("memory:") as room:
        person(room).send("bob", "another key is known here")
        with pytest.raises(NotAllowed, match="is no private key"):  # where it may be needed, it is read
            key.key_for(room.core, "human")


def test_without_a_terminal_no_key_is_made_or_brought_to_a_room(tmp_path: Path) -> None:
    with postroom.open("memory:") as room:
        with pytest.raises(NotAllowed, match="there is no key"):
            KeyFile(str(tmp_path / "k")).key_for(room.core, "human")
        assert not (tmp_path / "k").exists()
        make_key(str(tmp_path / "k"), "")
        with pytest.raises(NotAllowed, match="knows no key of human yet"):
            KeyFile(str(tmp_path / "k")).key_for(room.core, "human")
        with pytest.raises(NotAllowed, match="already"):
            make_key(str(tmp_path / "k"), "")


def test_a_passphrase_is_asked_for_once_and_must_be_right(tmp_path: Path) -> None:
    path = str(tmp_path / "k")
    public = public_text(make_key(path, "open sesame"))
    asked: list[str] = []

    def ask(prompt: str, answer: str = "open sesame") -> str:
        asked.append(prompt)
        return answer

    key = KeyFile(path, ask=ask)
    assert key.public() == public == key.public() and key.sign(b"x") and len(asked) == 1
    with pytest.raises(NotAllowed, match="with this passphrase"):
        KeyFile(path, ask=lambda _: "open barley").public()
    with pytest.raises(NotAllowed, match="has a passphrase"):
        KeyFile(path).public()
    asked.clear()
    typed = iter(("open barley", "open wheat", "open sesame"))
    assert KeyFile(path, ask=lambda prompt: ask(prompt, next(typed))).public() == public
    assert [prompt.startswith("Not this one.") for prompt in asked] == [False, True, True]


@pytest.mark.parametrize(
    "name", ["CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "GEMINI_CLI", "POSTROOM_AGENT"]
)
def test_inside_an_agents_session_nobody_signs(room: Room, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    me = person(room)
    me.send("bob", "x")
    monkeypatch.setenv(name, "coder")
    for act in (lambda: me.send("bob", "x"), me.claim):
        with pytest.raises(NotAllowed, match=f"inside an agent's session .{name}.*postroom escalate"):
            act()
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)
    monkeypatch.setenv("POSTROOM_AGENT", "ceo")  # the person's own name is none of an agent
    me.send("bob", "x")


def test_a_new_key_follows_the_old_one_in_every_room(tmp_path: Path) -> None:
    path = str(tmp_path / "k")
    with postroom.open("memory:") as one, postroom.open("memory:") as other:
        for room in (one, other):
            KeyFile(path, at_terminal=True).key_for(room.core, "human")
        Path(path).rename(path + OLD)
        make_key(path, "")
        for room in (one, other):
            assert KeyFile(path).key_for(room.core, "human").added_by == "signed"
            assert [live for *_, live in listed(room)] == [False, True]


def test_a_room_that_missed_two_rotations_needs_the_key_to_be_called_lost(tmp_path: Path) -> None:
    with postroom.open("memory:") as one, postroom.open("memory:") as other:
        key = KeyFile(str(tmp_path / "k"), at_terminal=True)
        for room in (one, other):
            key.key_for(room.core, "human")
        for _ in range(2):
            key = key.rotate("")
            key.key_for(one.core, "human")
        with pytest.raises(NotAllowed, match="is no key of human in this room"):
            key.key_for(other.core, "human")
        perform(other.core, OWNER, AddPerson(person="human", key=key.public(), lost=True))
        assert key.key_for(other.core, "human").added_by == "key lost"


def test_a_passphrase_protects_the_key_before_it_too(tmp_path: Path) -> None:
    path = str(tmp_path / "k")
    with postroom.open("memory:") as one, postroom.open("memory:") as other:
        key = KeyFile(path, at_terminal=True)
        for room in (one, other):
            key.key_for(room.core, "human")
        assert key.rotate("open sesame").key_for(one.core, "human").added_by == "signed"
        for file in (path, path + OLD):
            assert b"ENCRYPTED" in Path(file).read_bytes() and Path(file).stat().st_mode & 0o777 == 0o600
        asked: list[str] = []

        def ask(prompt: str) -> str:
            asked.append(prompt)
            return "open sesame"

        KeyFile(path, ask=ask).key_for(other.core, "human")
        assert len(asked) == 1 and [live for *_, live in listed(other)] == [False, True]


def test_another_key_in_place_of_a_protected_one_is_protected_and_asks_for_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "k")
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "open sesame"

    make_key(path, "open sesame")
    with postroom.open("memory:") as room:
        key = KeyFile(path, at_terminal=True, ask=ask)
        key.key_for(room.core, "human")
        assert key.has_passphrase and len(asked) == 1
        assert key.rotate("open barley").key_for(room.core, "human").added_by == "signed"
        assert len(asked) == 1, "the old key was open"
        for file in (path, path + OLD):
            kept = KeyFile(file, ask=lambda _: "open barley")
            assert kept.public() and kept.has_passphrase
        plain = KeyFile(str(tmp_path / "plain"), at_terminal=True)
        assert plain.public() and not plain.has_passphrase


def test_what_was_refused_is_not_announced_and_the_way_out_is_named(tmp_path: Path) -> None:
    told: list[str] = []
    with postroom.open("memory:", people="erin") as room:
        key = KeyFile(str(tmp_path / "k"), at_terminal=True, tell=told.append)
        mine = key.key_for(room.core, "human")
        with pytest.raises(NotAllowed, match="is the key of human, not of erin"):
            key.key_for(room.core, "erin")
        assert [text for text in told if "erin" in text] == []
        with pytest.raises(NotAllowed, match=r"is no key of human.*people add --lost"):
            KeyFile(str(tmp_path / "other"), at_terminal=True).key_for(room.core, "human")
        add = AddPerson(person="human", key=KeyFile(str(tmp_path / "other")).public(), lost=True)
        other = perform(room.core, OWNER, add)
        with pytest.raises(NotAllowed, match=r"was removed from this room.*people remove ID.*people add --lost"):
            key.key_for(room.core, "human")
        perform(room.core, replace(OWNER, signer=key), RemovePerson(id=other.id))
        assert key.key_for(room.core, "human").id == mine.id


def test_a_key_goes_with_the_person_to_another_name(tmp_path: Path) -> None:
    path = str(tmp_path / "keys" / "k")

    def as_now(room: Room) -> Room:
        return room.acting_as(replace(OWNER, signer=KeyFile(path, at_terminal=True)))

    with postroom.open(tmp_path / "room.db") as room:
        as_now(room).mailbox("human").send("bob", "one")
    with postroom.open(tmp_path / "room.db", human="dana", people="erin") as room:
        with pytest.raises(NotAllowed, match="is the key of human, not of erin"):
            as_now(room).mailbox("erin").claim()
        as_now(room).mailbox("dana").send("bob", "two")
        as_now(room).mailbox("dana").send("bob", "three")
        assert proven(room).count(True) == 3 and listed(room) == [("dana", "first use", True)]
        (told,) = room.mailbox("bob").check(kinds=KEY_CHANGED, unread_only=False)
        assert "human is called dana now" in told.text
    with postroom.open(tmp_path / "room.db") as room:
        as_now(room).mailbox("human").claim()
        assert listed(room) == [("dana", "first use", True)]


def test_the_only_key_of_the_caller_is_not_removed(room: Room) -> None:
    person(room).send("bob", "x")
    mine = key_id(key_file().public())
    with pytest.raises(Invalid, match=r"is your only key.*people rotate"):
        perform(room.core, signing(room).principal, RemovePerson(id=mine))
    person(room).send("bob", "still here")


def test_a_person_elsewhere_needs_the_identity_of_a_room_and_loses_no_key_here(room: Room) -> None:
    person(room).send("bob", "x")

    def add(**fields: Any) -> None:
        perform(room.core, signing(room).principal, AddPerson(person="human@far", key=key, **fields))

    key = key_file("far").public()
    for writes_in in ("", "here", "g" * 32, "a" * 31):
        with pytest.raises(Invalid, match=r"writes_in.*32 hexadecimal digits"):
            add(writes_in=writes_in)
    with pytest.raises(Invalid, match="lost: is for people of this room"):
        add(writes_in="a" * 32, lost=True)
    add(writes_in="a" * 32)
    assert ("human@far", "signed", True) in listed(room)


# -- other systems


@pytest.fixture
def near(tmp_path: Path) -> Room:
    room = postroom.open(tmp_path / "near.db", system="near")
    know_peer(room, Peer(system="here", exposure="all"))
    return room


@pytest.fixture
def here(factory: RoomFactory) -> Room:
    room = factory.room(system="here")
    know_peer(room, Peer(system="near", exposure="all"))
    for name in ("bob", "eve"):
        room.mailbox(name).register()
    person(room).send("eve", "so that there is a key")
    return room


def trust_person(here: Room, near: Room) -> None:
    """Add the key of the other system's person, who has another key than the one of this room."""
    near_person(near).send("bob", "so that there is a key")
    add = AddPerson(person="human@near", key=key_file("near").public(), writes_in=room_id(near.core))
    perform(here.core, signing(here).principal, add)


def near_person(near: Room) -> Mailbox:
    return signing(near, "near").mailbox("human")


def from_near(near: Room, to: str = "bob@here", **fields: Any) -> Envelope:
    letter = near_person(near).send(to, "Use the stable one.", **fields).message
    envelope = envelope_for(letter, (parse_address(to, "to"),), here="near")
    return decode_envelope(json.loads(json.dumps(encode_envelope(envelope, NOW, is_ours=True))), "here", NOW)


def came(here: Room, envelope: Envelope) -> Message:
    (outcome,) = accept(here.core, Peer(system="near", exposure="all"), envelope)
    assert outcome.problem is None
    letters = here.mailbox(envelope.targets[0].agent).check(sender=envelope.message.sender)
    return letters[-1].message


def test_the_word_of_a_person_elsewhere_counts_only_where_their_key_was_added(here: Room, near: Room) -> None:
    first = came(here, from_near(near))
    assert (first.sender, first.proof) == ("human@near", None)
    trust_person(here, near)
    second = came(here, from_near(near, subject="A subject", priority="high", kind="request"))
    assert second.proof is not None and second.origin == "human@near (the user, proven)"


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "another"},
        {"parts": ()},
        {"kind": "request"},
        {"in_reply_to": "other"},
        {"sender": "eve@near"},
        {"id": "another"},
    ],
    ids=str,
)
def test_a_peer_cannot_change_what_a_person_signed(here: Room, near: Room, change: dict[str, Any]) -> None:
    trust_person(here, near)
    envelope = from_near(near)
    moved = replace(envelope, message=replace(envelope.message, **change))
    assert came(here, moved).proof is None
    assert came(here, from_near(near)).proof is not None


def test_a_peer_cannot_hand_a_persons_letter_to_another_agent(
    here: Room, near: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust_person(here, near)

    def moved() -> Envelope:
        return replace(from_near(near), targets=(parse_address("eve@here", "to"),))

    assert came(here, moved()).proof is None
    monkeypatch.setattr(arrivals, "_is_to_these", lambda *_: True)  # the planted twin
    assert came(here, moved()).proof is not None


def test_a_peer_cannot_name_another_agent_as_a_hidden_recipient(
    here: Room, near: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust_person(here, near)

    def moved() -> Envelope:
        sent = from_near(near)
        assert sent.message.proof is not None
        to = (*sent.message.proof.recipients, Recipient("eve@here", "bcc"))
        message = replace(sent.message, proof=replace(sent.message.proof, recipients=to))
        return replace(sent, message=message, targets=(parse_address("eve@here", "to"),))

    assert came(here, moved()).proof is None
    monkeypatch.setattr(arrivals, "_is_to_these", lambda *_: True)  # the planted twin
    assert came(here, moved()).proof is not None


def test_the_same_key_in_another_room_of_theirs_proves_nothing_here(
    here: Room, near: Room, tmp_path: Path
) -> None:
    trust_person(here, near)
    with postroom.open(tmp_path / "second.db", system="near") as second:
        know_peer(second, Peer(system="here", exposure="all"))
        assert came(here, from_near(second)).proof is None


def test_a_link_without_the_check_is_found(here: Room, near: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_proof_of", lambda _core, arrival: arrival.message.proof)
    assert came(here, from_near(near)).proof is not None


# -- folders that other programs write


def in_folder(tmp_path: Path, layout: str) -> Room:
    return postroom.open(f"files:{tmp_path}/{layout}?layout={layout}")


@pytest.mark.parametrize("layout", ["swarm", "nanobot", "chipset"])
def test_in_a_folder_a_proof_is_checked_whenever_a_file_is_read(tmp_path: Path, layout: str) -> None:
    with in_folder(tmp_path, layout) as room:
        question = room.mailbox("bob").escalate("May I?", reason="approval", ladder=["human"])
        person(room).reply(question.id, "approved")
        assert proven(room) == [True] and room.mailbox("bob").escalations() == []
    for file in (tmp_path / layout / ".postroom").glob("index*"):
        file.unlink()
    with in_folder(tmp_path, layout) as room:
        assert proven(room) == [True], "the index was made anew, from the file"
        forge(room, tmp_path / layout)
        assert sorted(proven(room)) == [False, True]
        assert proven(room, "eve") == [False], "a copied file proves nothing in another mailbox"


def forge(room: Room, folder: Path) -> None:
    """Put the person's letter with another text beside it, and a copy of it into another agent's folder."""
    room.mailbox("ann").send("eve", "so that there is a folder")
    room.mailbox("eve").check()[0].ack()
    (own,) = [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and b"approved" in path.read_bytes()
        and b"May I" not in path.read_bytes()
        and ".postroom" not in str(path)
        and "human" not in path.parent.parts[-3:]
    ]
    raw = own.read_bytes()
    id = room.mailbox("bob").check(unread_only=False)[0].id
    place = own.with_name(own.name.replace(id, f"{id}x"))
    place = place if place != own else own.with_name(f"z{own.name}")
    place.write_bytes(raw.replace(b"approved", b"declined").replace(id.encode(), f"{id}x".encode()))
    other = Path(str(own.parent).replace(f"{os.sep}bob", f"{os.sep}eve")) / own.name
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_bytes(raw.replace(b'"bob"', b'"eve"') if b'"to": "bob"' in raw else raw)


@pytest.mark.parametrize("layout", ["swarm", "nanobot", "chipset"])
@pytest.mark.parametrize("is_checked", [True, False])
def test_in_a_folder_a_proof_is_for_the_signed_recipients_and_members_of_the_scope(
    tmp_path: Path, layout: str, is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_checked:  # the planted twin
        monkeypatch.setattr(FileConnection, "_is_for", lambda *_: True)
    with in_folder(tmp_path, layout) as room:
        room.mailbox("bob").register(scopes=["admins"])
        room.mailbox("eve").register()
        person(room).send("bob", "For Bob.")
        person(room).broadcast("admins", "For admins.")
        room.mailbox("zed").send("eve", "marker")
        (marker,) = own_files(tmp_path / layout, "marker")
        for text in ("For Bob.", "For admins."):
            (own,) = [file for file in own_files(tmp_path / layout, text) if f"{os.sep}bob" in str(file)]
            found = json.loads(own.read_bytes())
            if text == "For Bob.":
                add_bcc(found, "bob", "eve")
            marker.with_name(own.name).write_text(json.dumps(found))
        eve = room.mailbox("eve")
        mine = [one for one in eve.check(unread_only=False) if "For" in one.text]
        assert mine and {one.message.proof is not None for one in mine} == {not is_checked}
        assert proven(room) == [True, True]
    for file in (tmp_path / layout / ".postroom").glob("index*"):
        file.unlink()
    with in_folder(tmp_path, layout) as room:
        assert proven(room) == [True, True], "the index was made anew, from the files"


def own_files(folder: Path, text: str) -> list[Path]:
    found = [path for path in folder.rglob("*.json") if ".postroom" not in str(path)]
    return [path for path in found if text in path.read_text() and "sent" not in path.parts]


def add_bcc(found: Any, to: str, other: str) -> None:
    """Add a hidden recipient wherever Postroom's own note about a letter holds its recipients or its proof."""
    if isinstance(found, dict):
        if "proof" in found:
            found["recipients"] = [{"address": to, "kind": "to"}, {"address": other, "kind": "bcc"}]
        for value in found.values():
            add_bcc(value, to, other)

"""The keys of people in a room: whose they are, since when, and how they came here.

The first key of a room comes from its human at a terminal, and is believed. Later, only a person's own key changes
that person's keys, and the person who was first admits others; or a key replaces one that is said to be lost. All
agents of the room get a notice of every change after the first. Removed keys stay in the list.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, Missing, NotAllowed
from ..model.delivery import open_delivery
from ..model.message import KEY_CHANGED, same_name
from ..model.names import AT, HUMAN, check_id, check_party, meant
from ..model.person import PersonKey, key_id
from ..model.record import EVERYONE, IDENTITY, PERSON
from ..policy.limits import people_of
from ..store.protocol import all_names
from .core import change_record, commit, find_record, put_record, values_of
from .deliveries import notice
from .proof import check_person, is_person, room_id
from .verb import Verb, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.protocol import Post, Write
    from .authorize import Principal
    from .core import Core

TAKE_BACK = timedelta(days=7)  # how long a key that was replaced as lost can undo that
FIRST, SIGNED, LOST = "first use", "signed", "key lost"  # how a key came here
_PHRASE = "change the keys of people"
ROOM_DIGITS = frozenset("0123456789abcdef")
ROOM_RULE = "32 hexadecimal digits, which postroom people --json prints there as `room`"


class People(Struct):
    """The identity of the room, which proofs name, the mailboxes of people, and their keys, the oldest first."""

    room: str
    mailboxes: list[str]
    people: list[PersonKey]


@verb("people", People, action="people", writes=False)
class ListPeople(Verb, kw_only=True):
    """Return the people of the room and their public keys, also those that were removed."""

    def run(self, core: Core, _principal: Principal) -> People:
        keys = sorted(values_of(core, PERSON, PersonKey).values(), key=lambda key: (key.added_at, key.id))
        further = [name for key in keys if key.is_live for name in key.further_people]
        return People(room_id(core), [*dict.fromkeys((*people_of(core.limits), *further))], keys)


@verb("add_person", PersonKey, under="person", action="room", local=True)
class AddPerson(Verb, kw_only=True):
    """Add a key of a person: here, or at another system.

    The person's own key signs for it, or for somebody new the key of the person who was first here. In place of a
    lost key it needs no proof: then it replaces every key of the person, and all agents are told so.
    """

    person: Annotated[str, "the mailbox, or agent@system"]
    key: Annotated[str, "the public key: ed25519:…"]
    writes_in: Annotated[str, "of a person at another system: the identity of the room in which they write"] = ""
    replaces: Annotated[str, "the id of the key that it replaces"] = ""
    lost: Annotated[bool, "the key of the person is lost"] = False

    def run(self, core: Core, principal: Principal) -> PersonKey:
        person, id = meant(check_party(self.person, "person"), core.limits.human), key_id(self.key)
        is_far = AT in person
        if is_far != bool(self.writes_in):
            raise Invalid(
                "is for people at other systems, and for them it is needed", field="writes_in", hint=ROOM_RULE
            )
        if not is_far and not is_person(core, person):
            raise Invalid(
                f"{person!r} is no person here", field="person", hint="the setting people names further ones"
            )
        if is_far and self.lost:
            hint = "postroom people remove ID, then add the new key"
            raise Invalid("is for people of this room", field="lost", hint=hint)
        if is_far and not (len(self.writes_in) == 32 and ROOM_DIGITS.issuperset(self.writes_in)):
            raise Invalid("is not the identity of a room", field="writes_in", hint=ROOM_RULE)
        if not self.lost:
            _check_signer(core, principal, person)
        now = core.now().wall
        why = LOST if self.lost else SIGNED
        new = PersonKey(id=id, person=person, key=self.key, added_at=now, added_by=why, room=self.writes_in)

        def plan() -> tuple[Sequence[Write], PersonKey]:
            known = values_of(core, PERSON, PersonKey)
            if id in known:
                raise Invalid(
                    "is in the list already, and cannot be added twice", field="key", hint="make another"
                )
            theirs = [key for key in known.values() if same_name(key.person, person)]
            if self.lost:
                _check_lost(core, person, self.key, theirs)
            gone = [key for key in theirs if key.is_live and (self.lost or key.id == self.replaces)]
            further = dict.fromkeys(name for key in gone for name in key.further_people)
            made = replace(new, further_people=tuple(further))
            writes = [*_added(core, made), *(_changed(core, replace(key, removed_at=now)) for key in gone)]
            return [*writes, *_notices(core, person, self._words(person, id, gone))], made

        return commit(core, plan)

    def _words(self, person: str, id: str, gone: Sequence[PersonKey]) -> str:
        """Return what the agents of the room are told."""
        how = "added for a lost key" if self.lost else "signed by a key of the room"
        words = f"{person} has the new key {id}, {how}."
        if gone:
            words += f" It replaces {', '.join(key.id for key in gone)}."
        if self.lost:
            words += " Nobody proved that: ask the person by another way before you rely on it."
            words += f" If the former key is not lost: postroom people remove {id}, with that key."
        return words


@verb("remove_person", PersonKey, under="person", action="room", local=True)
class RemovePerson(Verb, kw_only=True):
    """Remove a key of a person: it proves nothing from now on. It stays in the list.

    A key that was said to replace a lost one is removed by that one, too, which then counts again.
    """

    id: Annotated[str, "the id of the key"]

    def run(self, core: Core, principal: Principal) -> PersonKey:
        id = check_id(self.id, "id")
        formers = _formers(core, id)
        if not (principal.signer and principal.signer.is_one_of(core, formers)):
            formers, key = [], values_of(core, PERSON, PersonKey).get(id)
            _check_signer(core, principal, core.limits.human if key is None else key.person)

        def plan() -> tuple[Sequence[Write], PersonKey]:
            known = values_of(core, PERSON, PersonKey)
            key = known.get(id)
            if key is None or not key.is_live:
                raise Missing(f"there is no key {id!r}", field="id", hint="postroom people lists them")
            theirs = [one for one in known.values() if one.is_live and same_name(one.person, key.person)]
            if AT not in key.person and theirs == [key] and not formers:
                hint = "postroom people rotate makes another; if it is lost: postroom people add --lost"
                raise Invalid("is your only key: without one you can answer nothing here", field="id", hint=hint)
            words = f"The key {id} of {key.person} proves nothing any more."
            again = [one for one in formers if not one.is_live]
            if formers:
                words += f" It was added as if another were lost. Do not rely on what {id} signed."
            if again:
                words += f" The key before it counts again: {', '.join(one.id for one in again)}."
            changed = [
                replace(key, removed_at=core.now().wall),
                *(replace(one, removed_at=None) for one in again),
            ]
            return [*(_changed(core, one) for one in changed), *_notices(core, key.person, words)], key

        return commit(core, plan)


def _formers(core: Core, id: str) -> list[PersonKey]:
    """Return the keys that the key `id` replaced as lost in the last days: one that still signs was not lost.

    Where it replaced none, the person who was first decides.
    """
    keys = values_of(core, PERSON, PersonKey)
    key = keys.get(id)
    if key is None or not _is_recent(core, key):
        return []
    theirs = [one for one in keys.values() if same_name(one.person, key.person)]
    return [one for one in theirs if one.removed_at == key.added_at] or live_keys(core, _first_person(core))


def live_keys(core: Core, person: str) -> list[PersonKey]:
    keys = values_of(core, PERSON, PersonKey).values()
    return [key for key in keys if key.is_live and same_name(key.person, person)]


def _first_person(core: Core) -> str:
    """Return the person whose key was here first, who admits others; in a room without keys, its human."""
    keys = [key for key in values_of(core, PERSON, PersonKey).values() if AT not in key.person]
    return min(keys, key=lambda key: key.added_at).person if keys else core.limits.human


def _check_signer(core: Core, principal: Principal, person: str) -> None:
    """Raise NotAllowed unless the person's own live key signs; for one who has none, that of the first person."""
    own = [] if AT in person else live_keys(core, person)
    by = person if own else _first_person(core)
    check_person(core, principal, by, _PHRASE)
    if principal.signer is not None:
        check_settled(core, principal.signer.key_for(core, by))


def _check_lost(core: Core, person: str, key: str, theirs: Sequence[PersonKey]) -> None:
    """Raise NotAllowed if this person has no key to lose, or one of them was called lost in the last days."""
    if not theirs and person != HUMAN:
        raise NotAllowed(f"{person} has no key here that could be lost", hint=_admitted(core, person, key))
    if recent := [one for one in theirs if _is_recent(core, one)]:
        raise NotAllowed(f"the key of {person} was called lost a short time ago", hint=_until(recent[0]))


def check_settled(core: Core, key: PersonKey) -> None:
    """Raise NotAllowed if this key took the place of a lost one in the last days: it changes no keys yet."""
    if _is_recent(core, key):
        raise NotAllowed(f"{key.id} is in place of a lost key, and changes no keys yet", hint=_until(key))


def _is_recent(core: Core, key: PersonKey) -> bool:
    return key.added_by == LOST and core.now().wall - key.added_at <= TAKE_BACK


def _until(key: PersonKey) -> str:
    return f"possible from {key.added_at + TAKE_BACK:%Y-%m-%d %H:%M} UTC on; the former key may remove {key.id}"


def _admitted(core: Core, person: str, key: str) -> str:
    return f"{_first_person(core)} admits others here: postroom people add {person} {key}"


def is_renamed(core: Core, key: PersonKey, person: str) -> bool:
    """Return whether a key's person has this new name: by the setting `human`, and no setting has the old one."""
    is_human = same_name(person, core.limits.human) and AT not in key.person
    return is_human and not any(same_name(key.person, name) for name in people_of(core.limits))


def take_over(core: Core, key: PersonKey, person: str) -> PersonKey:
    """Let a key sign for the new name of its person; what it signed under the former one stays proven."""
    words = f"{key.person} is called {person} now, and has the same key {key.id}."

    def plan() -> tuple[Sequence[Write], PersonKey]:
        now = values_of(core, PERSON, PersonKey)[key.id]  # another process may have removed it meanwhile
        new = replace(now, person=person, formerly=(*key.formerly, key.person))
        return [_changed(core, new), *_notices(core, person, words)], new

    return commit(core, plan)


def note_people(core: Core, key: PersonKey) -> PersonKey:
    """Note in the key of the person who was first here whom their settings name as further people.

    From then on these are people for every process, also for one with other settings, before they have a key here.
    """
    further = tuple(people_of(core.limits)[1:])
    if key.further_people == further or not same_name(key.person, _first_person(core)):
        return key

    def noted(now: PersonKey | None) -> PersonKey:
        return replace(now or key, further_people=further)

    return change_record(core, PERSON, key.id, PersonKey, noted)


def add_first_key(core: Core, person: str, key: str) -> PersonKey:
    """Add the first key of the room, of its human. Any other is signed for."""
    new = PersonKey(id=key_id(key), person=person, key=key, added_at=core.now().wall, added_by=FIRST)

    def plan() -> tuple[Sequence[Write], PersonKey]:
        known = values_of(core, PERSON, PersonKey)
        if new.id in known:
            hint = "POSTROOM_HUMAN_KEY names the file of another key"
            raise NotAllowed(f"this is the key of {known[new.id].person}, not of {person}", hint=hint)
        if known or not same_name(person, core.limits.human):
            text = f"the key of {person} is not the first one of this room"
            raise NotAllowed(text, hint=_admitted(core, person, key))
        return _added(core, new), new

    return commit(core, plan)


def _added(core: Core, new: PersonKey) -> list[Write]:
    """Return the writes of a new key, and of the identity of the room, where this is its first one."""
    named = [] if room_id(core) else [put_record(IDENTITY, EVERYONE, core.ids.token(), None)]
    return [*named, put_record(PERSON, new.id, new, None)]


def _changed(core: Core, key: PersonKey) -> Write:
    return put_record(PERSON, key.id, key, find_record(core, PERSON, key.id))


def _notices(core: Core, person: str, words: str) -> list[Post]:
    """Return one notice to everybody in the room."""
    first, *others = [name for name in all_names(core.store) if AT not in name] or [core.limits.human]
    now = core.now().wall
    post = notice(core, KEY_CHANGED, first, f"The key of {person} changed", words, {"person": person}, now)
    return [replace(post, deliveries=(open_delivery(post.message, first, "to", now),), copies=tuple(others))]

"""The keys of people in a room: who is believed to be a person, since when, and why.

The first key of a person is believed where a person at a terminal brings it; everybody in the room can see it.
Later keys need the proof of a person of this room, or stand in the list as those of a lost key. Every change after
the first is a notice to all agents of the room. Removed keys stay in the list.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, Missing, NotAllowed
from ..model.delivery import open_delivery
from ..model.message import KEY_CHANGED, same_name
from ..model.names import AT, check_id, check_party, meant
from ..model.person import PersonKey, key_id
from ..model.record import EVERYONE, IDENTITY, PERSON
from ..policy.limits import people_of
from ..store.protocol import all_names
from .core import commit, find_record, put_record, values_of
from .deliveries import notice
from .proof import check_person, is_person, room_id
from .verb import Verb, verb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..store.protocol import Post, Write
    from .authorize import Principal
    from .core import Core

TAKE_BACK = timedelta(days=7)  # for which a key that was called lost may remove the one in its place
FIRST, SIGNED, LOST = "first use", "a key of the room", "a lost key"
_PHRASE = "change the keys of people"


class People(Struct):
    """The identity of the room, which proofs name, the mailboxes of people, and their keys, the oldest first."""

    room: str
    mailboxes: list[str]
    people: list[PersonKey]


@verb("people", People, action="people", writes=False)
class ListPeople(Verb, kw_only=True):
    """Return the people of the room and their public keys, also those that were removed."""

    def run(self, core: Core, _principal: Principal) -> People:
        keys = values_of(core, PERSON, PersonKey).values()
        return People(room_id(core), people_of(core.limits), sorted(keys, key=lambda key: (key.added_at, key.id)))


class _Changing(Verb, kw_only=True):
    """A change that a person of this room proves."""

    by: Annotated[str, "the person of this room who does it"] = "human"

    def check(self, core: Core, principal: Principal) -> None:
        by = meant(check_party(self.by, "by"), core.limits.human)
        if not is_person(core, by):
            raise Invalid(f"{by!r} is no person", field="by", hint="the settings human and people name them")
        check_person(core, principal, by, _PHRASE)


@verb("add_person", PersonKey, under="person", action="room", local=True)
class AddPerson(_Changing, kw_only=True):
    """Add a key of a person: here, or at another system.

    In place of a lost key it needs no proof: then it replaces every key of the person, and all agents are told so.
    """

    person: Annotated[str, "the mailbox, or agent@system"]
    key: Annotated[str, "the public key: ed25519:…"]
    room: Annotated[str, "of a person at another system: the identity of the room in which they write"] = ""
    replaces: Annotated[str, "the id of the key that it replaces"] = ""
    lost: Annotated[bool, "the key of the person is lost"] = False

    def run(self, core: Core, principal: Principal) -> PersonKey:
        person, id = meant(check_party(self.person, "person"), core.limits.human), key_id(self.key)
        is_far = AT in person
        if is_far != bool(self.room):
            raise Invalid("is for people at other systems, and for them it is needed", field="room")
        if not is_far and not is_person(core, person):
            raise Invalid(
                f"{person!r} is no person here", field="person", hint="the setting people names further ones"
            )
        if not self.lost or is_far:
            self.check(core, principal)
        now = core.now().wall
        why = LOST if self.lost else SIGNED
        new = PersonKey(id=id, person=person, key=self.key, added_at=now, added_by=why, room=self.room)

        def plan() -> tuple[Sequence[Write], PersonKey]:
            if find_record(core, PERSON, id) is not None:
                raise Invalid(
                    "is in the list already, and cannot be added twice", field="key", hint="make another"
                )
            theirs = [key for key in values_of(core, PERSON, PersonKey).values() if same_name(key.person, person)]
            gone = [key for key in theirs if key.is_live and (self.lost or key.id == self.replaces)]
            words = f"{person} has the new key {id}, added {'for' if self.lost else 'by'} {why}."
            if gone:
                words += f" It replaces {', '.join(key.id for key in gone)}."
            if self.lost:
                words += " Nobody proved that: ask the person by another way before you rely on it."
                words += f" If the former key is not lost: postroom people remove {id}, with that key."
            writes = [*_added(core, new), *(_removal(core, key, now) for key in gone)]
            return [*writes, *_notices(core, person, words)], new

        return commit(core, plan)


@verb("remove_person", PersonKey, under="person", action="room", local=True)
class RemovePerson(_Changing, kw_only=True):
    """Remove a key of a person: it proves nothing from now on. It stays in the list.

    A key that was said to replace a lost one is removed by that one, too, which then counts again.
    """

    id: Annotated[str, "the id of the key"]

    def run(self, core: Core, principal: Principal) -> PersonKey:
        formers = self._formers(core)
        if not (principal.signer and principal.signer.is_one_of(core, formers)):
            formers = []
            self.check(core, principal)

        def plan() -> tuple[Sequence[Write], PersonKey]:
            key = values_of(core, PERSON, PersonKey).get(check_id(self.id, "id"))
            if key is None or not key.is_live:
                raise Missing(f"there is no key {self.id!r}", field="id", hint="postroom people lists them")
            words = f"The key {key.id} of {key.person} proves nothing any more."
            if formers:
                words += " It was added as if the key before it were lost, which counts again:"
                words += f" {', '.join(one.id for one in formers)}. Do not rely on what {key.id} signed."
            again = [_changed(core, one, removed_at=None) for one in formers]
            return [_removal(core, key), *again, *_notices(core, key.person, words)], key

        return commit(core, plan)

    def _formers(self, core: Core) -> list[PersonKey]:
        """Return the keys that this one replaced as lost in the last days: they are not lost if they sign."""
        keys = values_of(core, PERSON, PersonKey)
        key = keys.get(check_id(self.id, "id"))
        if key is None or key.added_by != LOST or core.now().wall - key.added_at > TAKE_BACK:
            return []
        theirs = [one for one in keys.values() if same_name(one.person, key.person)]
        return [one for one in theirs if one.removed_at == key.added_at]


def introduce(core: Core, person: str, key: str) -> PersonKey:
    """Add the first key of a person; another that came meanwhile is not replaced."""
    new = PersonKey(id=key_id(key), person=person, key=key, added_at=core.now().wall, added_by=FIRST)

    def plan() -> tuple[Sequence[Write], PersonKey]:
        known = values_of(core, PERSON, PersonKey)
        if new.id in known:
            hint = "POSTROOM_HUMAN_KEY names the file of another key"
            raise NotAllowed(f"this is the key of {known[new.id].person}, not of {person}", hint=hint)
        if any(same_name(one.person, person) for one in known.values()):
            raise Missing(f"{person} got another key meanwhile", hint="postroom people lists them")
        return _added(core, new), new

    return commit(core, plan)


def _added(core: Core, new: PersonKey) -> list[Write]:
    """Return the writes of a new key, and of the identity of the room, where this is its first one."""
    named = [] if room_id(core) else [put_record(IDENTITY, EVERYONE, core.ids.token(), None)]
    return [*named, put_record(PERSON, new.id, new, None)]


def _removal(core: Core, key: PersonKey, at: datetime | None = None) -> Write:
    return _changed(core, key, removed_at=at or core.now().wall)


def _changed(core: Core, key: PersonKey, *, removed_at: datetime | None) -> Write:
    return put_record(PERSON, key.id, replace(key, removed_at=removed_at), find_record(core, PERSON, key.id))


def _notices(core: Core, person: str, words: str) -> list[Post]:
    """Return one notice to everybody in the room."""
    first, *others = [name for name in all_names(core.store) if AT not in name] or [core.limits.human]
    now = core.now().wall
    post = notice(core, KEY_CHANGED, first, f"The key of {person} changed", words, {"person": person}, now)
    return [replace(post, deliveries=(open_delivery(post.message, first, "to", now),), copies=tuple(others))]

"""The commands about people: whose mail is proven here, and by which keys."""

from __future__ import annotations

from getpass import getpass
from typing import TYPE_CHECKING, Any

from ..core import people
from ..core.key_file import KeyFile
from ..core.proof import is_person
from ..errors import NotAllowed
from ..model.message import same_name
from ..model.names import HUMAN, check_agent
from ..model.names import meant as mailbox_of
from .command import LIMIT, Option, command
from .errors import Usage
from .output import listing, says

if TYPE_CHECKING:
    from .answer import Answer
    from .context import Context


command(
    "people",
    LIMIT,
    verb="people.ListPeople",
    view=listing(
        "people",
        {
            "PERSON": "person",
            "ID": "id",
            "SINCE": "added_at",
            "HOW": "added_by",
            "STATE": lambda _, key: "removed" if key["removed_at"] else "live",
            "KEY": "key",
        },
        "No person has a key in this room yet.",
        first="people add",
    ),
    examples=(("postroom people", "whose word is proven here"),),
    looks=True,
)


@command(
    "people add",
    Option("PERSON", name="person", help="a mailbox, or agent@system for a person at another system"),
    Option("KEY", name="key", help="the public key: ed25519:…"),
    Option(
        "--writes-in",
        name="writes_in",
        help="of a person at another system: the identity of their room",
        metavar="ID",
    ),
    Option(
        "--lost",
        help="the key of this person is lost: yours takes its place, and all agents are told",
        kind="flag",
    ),
    about="Without PERSON and KEY: brings your own key to this room, and makes it first if you have none. The"
    " room's first key is believed; a further one needs a signature by a key of the room. --lost needs none, and tells"
    " every agent of the room. postroom people --json prints the key and the identity of the room (`room`) that the"
    " other system needs. You act as --as, else the human. Not for agents: it is refused inside their sessions.",
    examples=(("postroom people add", "your own key, at a terminal"),),
    json="person",
    by=HUMAN,
    looks=True,
)
def run_add_person(context: Context) -> Answer:
    signer = _signer(context)
    person, key = context.get("person", context.me), context.get("key", "")
    if bool(key) != ("person" in context.values):
        raise Usage("a person and a key belong together", field="KEY", hint="neither brings your own key")
    if not key and not context.get("lost"):
        return _shown(context, signer.key_for(context.core, context.mailbox.name))
    if context.get("lost"):
        signer.check_terminal(context.core, context.mailbox.name)
    made = context.perform(
        people.AddPerson,
        person=person,
        key=key or signer.public(),
        writes_in=context.get("writes_in", ""),
        lost=context.get("lost", False),
    )
    return _shown(context, made)


@command(
    "people remove",
    Option("ID", name="id", help="the id of the key, as postroom people shows it", required=True),
    about="The key proves nothing from now on. It stays in the list, and every agent is told.",
    examples=(('postroom people remove "$KEY_ID"', "it is not used any more"),),
    json="person",
    by=HUMAN,
    looks=True,
)
def run_remove_person(context: Context) -> Answer:
    _signer(context)
    removed = context.perform(people.RemovePerson, id=context.get("id"))
    known = context.perform(people.ListPeople).people
    left = [key.id for key in known if key.is_live and same_name(key.person, removed.person)]
    text = "The key {person.id} of {person.person} is removed."
    text += f" Now these keys prove their word here: {', '.join(left)}." if left else ""
    return context.shown({"person": removed}, says(text))


@command(
    "people rotate",
    Option(
        "--passphrase",
        help="encrypt the new key: a passphrase is asked for, as it always is where the old key has one",
        kind="flag",
    ),
    about="Makes you another key. Your old key signs for it in this room at once, and in every other room as soon as"
    " you write there. Until then the old key stays beside the new one, in a file with the ending .old and with the"
    " same passphrase. In a room where you did not write between two rotations, type postroom people add --lost.",
    examples=(("postroom people rotate", "another key, from now on"),),
    json="person",
    by=HUMAN,
    looks=True,
)
def run_rotate_person(context: Context) -> Answer:
    signer = _signer(context)
    name = context.mailbox.name
    people.check_settled(context.core, signer.key_for(context.core, name))  # the old key is good here
    passphrase = ""
    if context.get("passphrase") or signer.has_passphrase:
        signer.check_terminal(context.core, name)
        passphrase = getpass("New passphrase: ")
        if not passphrase or getpass("Once more: ") != passphrase:
            raise Usage(
                "the two are not the same, or empty",
                field="--passphrase",
                hint="the key is as it was: type it again",
            )
    return _shown(context, signer.rotate(passphrase).key_for(context.core, name))


def _signer(context: Context) -> KeyFile:
    """Return the key of the person who types."""
    if not is_person(context.core, mailbox_of(check_agent(context.me, "mailbox"), context.settings.human)):
        raise Usage(f"{context.me} is no person", field="--as", hint="the settings human and people name them")
    context.check_room()
    signer = context.principal.signer
    if not isinstance(signer, KeyFile):
        raise NotAllowed("nobody is at a terminal", hint="a person types this; POSTROOM_HUMAN_KEY names a key")
    return signer


def _shown(context: Context, key: Any) -> Answer:
    return context.shown({"person": key}, says("{person.person} is known in this room by the key {person.id}."))

"""The private key of a person, in a file that only its owner can read, outside of rooms and projects.

The file is an Ed25519 key in PEM (PKCS #8), which may be encrypted with a passphrase. It is made at its first use
by a person at a terminal, and never inside an agent's session. It signs nothing there either: what an agent types
is not the person's word, though the agent may run as the same user.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..environment import PROJECT, ROOM, agent_session, human_key_file, variable, whole_path
from ..errors import Invalid, NotAllowed
from ..model.message import same_name
from ..model.names import check_agent, meant
from ..model.person import PUBLIC, PersonKey, to_base64
from ..model.record import PERSON
from ..model.values import passes
from .authorize import OWNER
from .core import values_of
from .people import AddPerson, add_first_key, is_renamed, note_people, take_over
from .verb import perform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from .core import Core

OLD = ".old"  # ends the name of the file of the key before this one
MOST_TRIES = 3  # to type a passphrase
LARGEST = 8192  # bytes of a key file
ASK_A_PERSON = "ask the person instead: postroom escalate, postroom send human, or the tool send_message"


class KeyFile:
    """A person's private key as a signer (`proof.Signer`)."""

    def __init__(
        self,
        path: str = "",
        *,
        at_terminal: bool = False,
        ask: Callable[[str], str] | None = None,
        tell: Callable[[str], None] = lambda _text: None,
        inside: str = "",
    ) -> None:
        """Take the key in this file, by default the usual one.

        Args:
            path: another file
            at_terminal: whether a person sits there, who may make the key and bring it to a room
            ask: how the passphrase is asked for
            tell: how the person is told what was made
            inside: the agent's session in which this process runs, if it is known
        """
        self.path = whole_path(path) if path else human_key_file()
        self._at_terminal, self._ask, self._tell = at_terminal, ask, tell
        self._inside = inside
        self._private: Ed25519PrivateKey | None = None
        self._passphrase = ""  # as it was typed last
        self._before: KeyFile | None = None  # the opened key that this one replaced

    def key_for(self, core: Core, person: str) -> PersonKey:
        """Return the key as this room knows it. The room's first key is believed, and shown to everyone."""
        return note_people(core, self._known_key(core, person))

    def _known_key(self, core: Core, person: str) -> PersonKey:
        check_no_session(core, person, self._inside)
        public = self.public()
        known = values_of(core, PERSON, PersonKey).values()
        keys = [key for key in known if any(same_name(name, person) for name in (key.person, *key.formerly))]
        mine = next((key for key in keys if key.key == public), None)
        if mine is not None and mine.is_live:
            return mine
        if mine is not None:
            hint = (
                "if it was called lost and is not: postroom people remove ID, with the id of the key in its place"
            )
            hint += f"; else move {self.path} away, and postroom people add --lost makes another"
            raise NotAllowed(f"the key in {self.path} was removed from this room", hint=hint)
        theirs = next((key for key in known if key.key == public and key.is_live), None)
        if theirs is not None and is_renamed(core, theirs, person):
            return take_over(core, theirs, person)
        if (followed := self._follow(core, keys)) is not None:
            return followed
        if keys:
            hint = "postroom people lists the keys; if yours is lost: postroom people add --lost"
            raise NotAllowed(f"{self.path} is no key of {person} in this room", hint=hint)
        if not self._at_terminal:
            hint = "postroom people add, once, at a terminal"
            raise NotAllowed(f"the room knows no key of {person} yet", hint=hint)
        first = add_first_key(core, person, public)
        self._tell(f"{person} is known in this room by your key {self.path} from now on")
        return first

    def may_sign(self, core: Core, person: str) -> bool:
        """Return whether this is no agent's session. It does not read the key."""
        return passes(NotAllowed, check_no_session, core, person, self._inside)

    def is_one_of(self, core: Core, keys: Sequence[PersonKey]) -> bool:
        """Return whether this key is in the list; all keys of the list belong to one person."""
        if not keys:
            return False
        check_no_session(core, keys[0].person, self._inside)
        return self.public() in {key.key for key in keys}

    def _follow(self, core: Core, keys: Sequence[PersonKey]) -> PersonKey | None:
        """Replace the key before this one in this room, too, if the room knows it: that one signs for this one."""
        old = self._before
        if old is None and os.path.lexists(self.path + OLD):
            old = KeyFile(self.path + OLD, ask=self._ask)
            old._passphrase = self._passphrase  # the same, unless the person changed that by hand
        live = [key for key in keys if key.is_live]
        if old is None or not live:  # in a room that knows none, the file before this one need not be read
            return None
        was = next((key for key in live if key.key == old.public()), None)
        if was is None:
            return None
        add = AddPerson(person=was.person, key=self.public(), replaces=was.id)
        return perform(core, replace(OWNER, signer=old), add)

    @property
    def has_passphrase(self) -> bool:
        """Whether the key that was read has a passphrase."""
        return bool(self._passphrase)

    def rotate(self, passphrase: str) -> KeyFile:
        """Put another key in the file and return it; keep this one beside it, with the same passphrase."""
        write_key(self.path + OLD, self._load(), passphrase, replaces=True)
        make_key(self.path, passphrase, replaces=True)
        new = KeyFile(self.path, ask=self._ask, tell=self._tell, inside=self._inside)
        new._passphrase, new._before = passphrase, self
        return new

    def check_terminal(self, core: Core, person: str) -> None:
        """Raise NotAllowed unless a person is at a terminal."""
        check_no_session(core, person, self._inside)
        if not self._at_terminal:
            raise NotAllowed("nobody is at a terminal", hint="a person types this")

    def public(self) -> str:
        """Return the public key."""
        return public_text(self._load())

    def sign(self, content: bytes) -> str:
        return to_base64(self._load().sign(content))

    def _load(self) -> Ed25519PrivateKey:
        if self._private is None:
            check_outside(self.path)
            raw = read_own(self.path)
            if raw is None and not self._at_terminal:
                hint = "postroom people add makes one at a terminal; POSTROOM_HUMAN_KEY names another file"
                raise NotAllowed(f"there is no key in {self.path}", hint=hint)
            if raw is None:
                self._private = make_key(self.path, "")
                self._tell(f"your key is in {self.path}; postroom people rotate --passphrase protects it")
            else:
                self._private = self._decoded(raw)
        return self._private

    def _decoded(self, raw: bytes) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

        is_encrypted = b"ENCRYPTED" in raw[:64]
        if is_encrypted and self._ask is None and not self._passphrase:
            text = f"the key in {self.path} has a passphrase"
            raise NotAllowed(text, hint="type the command at a terminal")
        for typed in self._passphrases() if is_encrypted else ("",):
            with suppress(ValueError, TypeError):
                found = load_pem_private_key(raw, typed.encode() or None)
                break
        else:
            text = "cannot be opened with this passphrase" if is_encrypted else "is no private key"
            hint = "an OpenSSH key is none: postroom people add makes one" if b"OPENSSH" in raw[:64] else None
            raise NotAllowed(f"{self.path} {text}", field="human_key", hint=hint)
        self._passphrase = typed
        if not isinstance(found, Ed25519PrivateKey):
            raise Invalid(f"{self.path} holds a key of another kind", field="human_key", hint="an Ed25519 key")
        return found

    def _passphrases(self) -> Iterator[str]:
        if self._passphrase:
            yield self._passphrase
        if self._ask is not None:
            for again in range(MOST_TRIES):
                try:
                    yield self._ask(f"{'Not this one. ' if again else ''}Passphrase of {self.path}: ")
                except EOFError:
                    raise NotAllowed("no passphrase was typed", field="human_key", hint="type it again") from None


def session_mark(core: Core, person: str) -> str:
    """Return the variable that shows an agent's session around us; empty where none does."""
    agent = variable("POSTROOM_AGENT")
    with suppress(Invalid):
        if agent and not same_name(meant(check_agent(agent, "agent"), core.limits.human), person):
            return agent_session() or "POSTROOM_AGENT"
    return agent_session()


def check_no_session(core: Core, person: str, inside: str = "") -> None:
    """Raise NotAllowed inside an agent's session: there nobody acts for a person."""
    mark = session_mark(core, person)
    if mark or inside:
        where, how = (mark, f"{mark} is not set") if mark else (inside, f"no host of {inside} runs")
        hint = f"{ASK_A_PERSON}; a person types in a terminal where {how}"
        raise NotAllowed(f"nobody acts for {person} inside an agent's session ({where})", hint=hint)


def check_outside(path: str) -> None:
    """Raise NotAllowed if a key lies in a project or beside a room, where agents read, write and commit files.

    Folders around the user's home do not count: a project there would hold every file of the user.
    """
    home, place = Path.home().resolve(), Path(path).parent.resolve()
    marks = [place / ROOM, *(folder / PROJECT for folder in (place, *place.parents))]
    for mark in marks:
        if os.path.lexists(mark) and not home.is_relative_to(mark.parent):
            text = f"the key in {path} lies in the folder of {mark}"
            raise NotAllowed(text, field="human_key", hint="move it out of there; POSTROOM_HUMAN_KEY names it")


def read_own(path: str) -> bytes | None:
    """Return the content of a key file; None if there is none. Refuse one that others may read or own."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as broken:
        raise NotAllowed(f"the key in {path} cannot be read: {broken.strerror}", field="human_key") from None
    found = os.fstat(descriptor)
    if not S_ISREG(found.st_mode):
        os.close(descriptor)
        raise NotAllowed(f"{path} is no regular file", field="human_key", hint="POSTROOM_HUMAN_KEY names a file")
    with open(descriptor, "rb") as file:
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise NotAllowed(f"others may read the key in {path}", field="human_key", hint=f"chmod 600 {path}")
        return file.read(LARGEST)


def make_key(path: str, passphrase: str, *, replaces: bool = False) -> Ed25519PrivateKey:
    """Make a key and write its file. Only a key that it replaces is overwritten."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    private = Ed25519PrivateKey.generate()
    write_key(path, private, passphrase, replaces=replaces)
    return private


def write_key(path: str, private: Ed25519PrivateKey, passphrase: str, *, replaces: bool) -> None:
    """Write the file of a key, durably, for its owner alone."""
    from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415 - for people alone

    how = forms.BestAvailableEncryption(passphrase.encode()) if passphrase else forms.NoEncryption()
    raw = private.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, how)
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = f"{path}.{os.getpid()}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        (os.replace if replaces else os.link)(fresh, path)  # a link fails where another process was quicker
    except FileExistsError:
        raise NotAllowed(f"there is a key in {path} already", field="human_key", hint="try again") from None
    finally:
        Path(fresh).unlink(missing_ok=True)


def public_text(private: Ed25519PrivateKey) -> str:
    return PUBLIC + to_base64(private.public_key().public_bytes_raw())

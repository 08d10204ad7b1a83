"""The front door: open a room, get a mailbox, look after the room.

    import postroom
    room = postroom.open()
    room.mailbox("coder").send("researcher", "Which sort is stable?")

Below it stands the service; above it only the async face. No server is needed and none is started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from .clock import Clock, Ids, RandomIds, SystemClock
from .errors import Invalid
from .letter import Letter
from .mailbox import Mailbox, Wanted, as_filter
from .model.card import Agent
from .model.change import Change, Cursor
from .model.message import Message
from .model.names import check_agent
from .model.thread import Conversation, Thread, Turn
from .service import directory, present, reading, threads
from .service.authorize import OWNER, Principal, authorize
from .service.given import check_count, listed
from .service.office import Office
from .settings import Settings, default_room, load_settings
from .store.base import Store
from .store.opening import open_store

if TYPE_CHECKING:
    from typing import Unpack

    from .service.janitor import Sweep
    from .service.portable import Imported


def open(store: str | os.PathLike[str] | None = None, **settings: Any) -> Room:
    """Open a room, and make it if it is not there.

    `store` is `sqlite:/path/to/room.db`, a path, or `memory:`. Without it, in this order: POSTROOM_STORE, the
    room of the project around the working folder (`postroom init` makes one), the config file, the user's own
    room. Every other setting may be given by name (docs/reference.md).
    """
    address = f"sqlite:{os.fspath(store)}" if isinstance(store, os.PathLike) else store
    chosen = load_settings({"store": address, **settings})
    chosen = chosen if chosen.store else replace(chosen, store=f"sqlite:{default_room()}")
    clock = SystemClock()
    opened = open_store(
        chosen.store,
        boot=clock.now().boot,
        durable=chosen.durability == "power",
        busy_timeout=chosen.busy_timeout,
    )
    return Room(opened, chosen, clock=clock)


class Room:
    """A post room. Any number of threads may use one; processes each open their own."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        principal: Principal = OWNER,
    ) -> None:
        self.settings = settings
        self._principal = principal
        self._office = Office(
            store, settings, clock or SystemClock(), ids or RandomIds(), file_root=settings.file_root
        )

    def mailbox(self, name: str) -> Mailbox:
        """An agent's mailbox. It need not exist: mail can be waited for before it is ever sent."""
        return Mailbox(self, name)

    def wait(
        self,
        mailboxes: Sequence[str],
        timeout: float = 30.0,
        *,
        since: Cursor | str | None = None,
        peek: bool = False,
        **wanted: Unpack[Wanted],
    ) -> Letter | None:
        """The next letter at any of these mailboxes; None when the time is up."""
        names = [check_agent(name, "mailboxes") for name in listed(mailboxes, "mailboxes")]
        if not names:
            raise Invalid("nobody is named", field="mailboxes", hint="an agent's name, or a list of them")
        cursor = None if since is None else reading.check_cursor(since)
        filter = as_filter(wanted)
        found = reading.wait(self._office, self._principal, names, timeout, since=cursor, peek=peek, filter=filter)
        return None if found is None else Letter(self.mailbox(found.delivery.mailbox), found)

    def quarantined(self) -> list[str]:
        """The ids of letters that were found damaged on disk and set aside."""
        authorize(self._principal, "room")
        return self._office.store.quarantined()

    def mailboxes(self) -> list[str]:
        """Every name that ever wrote, was written to, or registered."""
        authorize(self._principal, "room")
        return self._office.store.mailboxes()

    def agents(self, *, scope: str | None = None, capability: str | None = None) -> list[Agent]:
        """Who is registered, what they can do, how they are."""
        return directory.agents(self._office, self._principal, scope=scope, capability=capability)

    def agent(self, name: str) -> Agent:
        return directory.agent(self._office, self._principal, check_agent(name, "id"))

    # -- the operator's view

    def thread(self, id: str) -> list[Message]:
        """All letters of a thread, the oldest first."""
        return threads.thread(self._office, self._principal, None, id)

    def threads(self, limit: int = 50) -> list[Thread]:
        return threads.threads(self._office, self._principal, None, limit)

    def conversations(self, *, scope: str | None = None, limit: int = 50) -> list[Conversation]:
        return threads.conversations(self._office, self._principal, None, scope, limit)

    def turns(self, conversation: str) -> list[Turn]:
        return threads.turns(self._office, self._principal, None, conversation)

    def cursor(self) -> Cursor:
        """Now. Keep it (`str(cursor)`), and ask later what happened since."""
        return self._office.store.cursor()

    def changes(self, since: Cursor | str, limit: int = 1000) -> tuple[list[Change], Cursor]:
        """What happened after a cursor, and the cursor after that; Resync when it can no longer be told."""
        authorize(self._principal, "room")
        return self._office.store.changes(reading.check_cursor(since), check_count(limit, "limit"))

    # -- care

    def sweep(self) -> Sweep:
        """One round of the janitor: leases, expiry, archive, retention. Call it now and then."""
        from .service import janitor  # noqa: PLC0415 - few programs need it

        return janitor.sweep(self._office, self._principal)

    def archive(self, older_than: float | None = None) -> int:
        """Archive what was acknowledged so many seconds ago (by default `archive_after`); says how many."""
        from .service import janitor  # noqa: PLC0415 - few programs need it

        return janitor.archive(self._office, self._principal, older_than)

    def purge(
        self,
        *,
        older_than: float | None = None,
        keep: int | None = None,
        tell: Callable[[int], None] | None = None,
    ) -> int:
        """Delete mail that is done or dead everywhere: what was settled so many seconds ago, and what is more than
        the newest `keep`. Without either, as the settings say. `tell` hears how many went so far. Says how many.
        """
        from .service import janitor  # noqa: PLC0415 - few programs need it

        return janitor.purge(self._office, self._principal, older_than=older_than, keep=keep, tell=tell)

    def export(self) -> Iterator[bytes]:
        """The whole room as JSON lines."""
        from .service import portable  # noqa: PLC0415 - few programs need it

        return portable.export_room(self._office, self._principal)

    def load(self, lines: Iterable[bytes | str]) -> Imported:
        """Fill this empty room from an export."""
        from .service import portable  # noqa: PLC0415 - few programs need it

        return portable.import_room(self._office, self._principal, lines)

    def markdown(self, message: Message) -> str:
        """A letter as text for a prompt, its content inside a fence it cannot break."""
        return present.markdown(message, os.urandom(8).hex())

    def digest(
        self,
        messages: Sequence[Message],
        *,
        budget: int = 4000,
        most: int = 5,
        longest: int = 500,
        total: int | None = None,
    ) -> str:
        """The first letters as text for a prompt, never more than `budget` characters. `total`: of how many."""
        check_count(budget, "budget", least=0)
        shown = messages[: check_count(most, "most")]
        longest = check_count(longest, "longest", least=0)
        return present.digest(
            shown, os.urandom(8).hex(), budget=budget, longest=longest, total=max(total or 0, len(messages))
        )

    def close(self) -> None:
        """Let go of files. Nothing needs to be saved. A room that is used again opens itself again."""
        self._office.store.close()

    def __repr__(self) -> str:
        return f"<Room {self.settings.store or 'in memory'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

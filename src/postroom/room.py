"""The front door: open a room, get a mailbox, look after the room.

    import postroom
    room = postroom.open()
    room.mailbox("coder").send("researcher", "Which sort is stable?")

Below it stands the service; above it only the async face. No server is needed and none is started.
"""

from __future__ import annotations

import os
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from . import service
from .clock import RandomIds, SystemClock
from .errors import Invalid
from .letter import Letter
from .mailbox import Mailbox
from .model.message import DEFAULT_SCOPE
from .model.names import check_agent, check_party, meant
from .service.authorize import OWNER, authorize
from .service.given import check_count, listed
from .service.office import Office
from .settings import default_room, load_settings, misspelt
from .store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType
    from typing import Unpack

    from .clock import Clock, Ids
    from .fields import Wanted
    from .model.card import Agent
    from .model.change import Change, Cursor
    from .model.escalation import Escalation
    from .model.health import BackupReport, Diagnosis, Progress
    from .model.message import Message
    from .model.ring import LostRing
    from .model.stats import Flow, Stats
    from .model.template import Template
    from .model.thread import Conversation, Thread, Turn
    from .model.trace import Trace
    from .service.authorize import Principal
    from .service.janitor import Sweep
    from .service.portable import Imported
    from .settings import Settings
    from .store.base import Store


def open(store: str | os.PathLike[str] | None = None, **settings: Any) -> Room:
    """Open a room, and make it if it is not there.

    `store` is `sqlite:/path/to/room.db`, a path, or `memory:`. Without it, in this order: POSTROOM_STORE, the
    room of the project around the working folder (`postroom init` makes one), the config file, the user's own
    room. Every other setting may be given by name (docs/reference.md).
    """
    return open_with(chosen_settings(store, settings), SystemClock())


def open_with(chosen: Settings, clock: Clock, *, makes: bool = True) -> Room:
    """The same, where all is chosen; not `makes`: in a folder that must be there."""
    store = open_store(
        chosen.store,
        boot=clock.now().boot,
        durable=chosen.durability == "power",
        busy_timeout=chosen.busy_timeout,
        makes=makes,
    )
    return Room(store, chosen, clock=clock)


def chosen_settings(
    store: str | os.PathLike[str] | None, settings: dict[str, Any], defaults: Mapping[str, Any] | None = None
) -> Settings:
    """The settings in force for a room that is opened like this. `defaults` replace those of the library."""
    address = f"sqlite:{os.fspath(store)}" if isinstance(store, os.PathLike) else store
    chosen = load_settings({"store": address, **settings}, defaults=defaults)
    return chosen if chosen.store else replace(chosen, store=f"sqlite:{default_room()}")


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
        self._default_scope = DEFAULT_SCOPE  # of what agent-inbox's programs say without one; the service sets it
        self._principal = principal
        self._office = Office(
            store,
            settings,
            clock or SystemClock(),
            ids or RandomIds(),
            file_root=settings.file_root,
            system=settings.system,
        )

    @property
    def principal(self) -> Principal:
        """Who is calling."""
        return self._principal

    def acting_as(self, principal: Principal) -> Room:
        """The same room, for another caller. Surfaces that know their callers use it."""
        room = copy(self)
        room._principal = principal  # noqa: SLF001 - a Room too
        return room

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
        human = self.settings.human
        names = [meant(check_agent(name, "mailboxes"), human) for name in listed(mailboxes, "mailboxes")]
        if not names:
            raise Invalid("nobody is named", field="mailboxes", hint="an agent's name, or a list of them")
        cursor = None if since is None else service.reading.check_cursor(since)
        filter = service.reading.as_filter(wanted)
        found = service.reading.wait(
            self._office, self._principal, names, timeout, since=cursor, peek=peek, filter=filter
        )
        return None if found is None else Letter(self.mailbox(found.delivery.mailbox), found)

    @property
    def system(self) -> str:
        """What this post room is called among others."""
        return service.identity.system_id(self._office, self._principal, self.settings.system)

    def quarantined(self) -> list[str]:
        """The ids of letters that were found damaged on disk and set aside."""
        authorize(self._principal, "room")
        return self._office.store.quarantined()

    def mailboxes(self) -> list[str]:
        """Every name that ever wrote, was written to, or registered."""
        authorize(self._principal, "room")
        return self._office.store.mailboxes()

    def agents(
        self, *, scope: str | None = None, capability: str | None = None, gone: bool = False
    ) -> list[Agent]:
        """Who is here, what they can do, how they are and what they work on; with `gone`, those of old too."""
        return service.directory.agents(
            self._office, self._principal, scope=scope, capability=capability, gone=gone
        )

    def agent(self, name: str) -> Agent:
        meant_by_it = meant(check_party(name, "id"), self.settings.human)
        return service.directory.agent(self._office, self._principal, meant_by_it)

    def rename(self, old: str, new: str) -> None:
        """Give an agent another name: all that is its own follows, and mail to the old name still arrives."""
        service.renaming.rename(self._office, self._principal, old, new)

    # -- templates

    def save_template(self, name: str, **said: Any) -> Template:
        """Keep a recurring letter: body, subject, kind, priority, tags, with `{places}` in the text."""
        return service.templates.save(self._office, self._principal, name, **said)

    def template(self, name: str) -> Template:
        return service.templates.get(self._office, self._principal, name)

    def templates(self) -> list[Template]:
        """All templates, by name."""
        return service.templates.everyone(self._office, self._principal)

    def delete_template(self, name: str) -> None:
        service.templates.delete(self._office, self._principal, name)

    # -- the operator's view

    def thread(self, id: str) -> list[Message]:
        """All letters of a thread, the oldest first."""
        return service.threads.thread(self._office, self._principal, None, id)

    def tagged(self, tag: str, scope: str | None = None) -> list[Message]:
        """All letters with a thread tag, the oldest first."""
        return service.threads.tagged(self._office, self._principal, None, tag, scope)

    def search(self, query: str, *, limit: int = 20, ranked: bool = False) -> list[Message]:
        """Letters by what they say, whoever sent or got them. See `Mailbox.search`."""
        return service.search.search(self._office, self._principal, None, query, limit=limit, ranked=ranked)

    def threads(self, limit: int = 50) -> list[Thread]:
        return service.threads.threads(self._office, self._principal, None, limit)

    def conversations(self, *, scope: str | None = None, limit: int = 50) -> list[Conversation]:
        return service.threads.conversations(self._office, self._principal, None, scope, limit)

    def turns(self, conversation: str) -> list[Turn]:
        return service.threads.turns(self._office, self._principal, None, conversation)

    def escalations(self, *, open_only: bool = True) -> list[Escalation]:
        """Questions that were escalated, the oldest first; `waits_for` says whose answer each waits for."""
        return service.escalating.escalations(self._office, self._principal, None, open_only=open_only)

    def cursor(self) -> Cursor:
        """Now. Keep it (`str(cursor)`), and ask later what happened since."""
        return service.reading.cursor_of(self._office, self._principal)

    def changes(self, since: Cursor | str, limit: int = 1000) -> tuple[list[Change], Cursor]:
        """What happened after a cursor, and the cursor after that; Resync when it can no longer be told."""
        authorize(self._principal, "room")
        return self._office.store.changes(service.reading.check_cursor(since), check_count(limit, "limit"))

    # -- care

    def sweep(self, *, progress: Progress | None = None) -> Sweep:
        """One round of the janitor: leases, expiry, archive, retention, deadlines, index. Call it now and then."""
        return service.janitor.sweep(self._office, self._principal, progress)

    def archive(self, *, older_than: float | timedelta | None = None, progress: Progress | None = None) -> int:
        """Archive mail acknowledged more than so many seconds ago; without a time, as the settings say."""
        return service.janitor.archive(self._office, self._principal, older_than, progress)

    def purge(
        self,
        *,
        older_than: float | timedelta | None = None,
        keep: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete letters that are done or dead everywhere: those settled more than so many seconds ago, and all
        but the newest `keep`. Without either, as the settings say. Open mail is never touched.
        """
        return service.janitor.purge(self._office, self._principal, older_than, keep, progress)

    def stats(self) -> Stats:
        """The room in numbers: letters, deliveries by state, what waits where and for how long."""
        return service.counting.room_stats(self._office, self._principal)

    def flow(self, last: Flow | None = None) -> Flow:
        """What waits now, and what was sent and done since the last look: `flow = room.flow(flow)`."""
        return service.counting.flow(self._office, self._principal, last)

    def trace(self, id: str) -> Trace:
        """The life of one letter, with every delivery and all that came of it."""
        return service.tracing.trace(self._office, self._principal, None, id)

    def dead_rings(self) -> list[LostRing]:
        """Rings that were given up, for letters that are still unread, at all mailboxes."""
        return service.lost_rings.dead_rings(self._office, self._principal, None)

    def retry_rings(self, *, way: str | None = None, ids: str | Sequence[str] | None = None) -> int:
        """Try dead rings again; gives how many."""
        return service.lost_rings.retry_rings(self._office, self._principal, None, way=way, ids=ids)

    def doctor(self, *, repair: bool = False, full: bool = False, progress: Progress | None = None) -> Diagnosis:
        """Check this room's health, with a real write and read; `repair` mends what is safe to mend."""
        from .model.health import warning  # noqa: PLC0415 - rare

        likely = misspelt()
        known = [
            warning("settings", f"{name} is not a setting and is ignored", f"did you mean {meant}?")
            for name, meant in likely.items()
        ]
        return service.doctor.doctor(
            self._office, self._principal, repair=repair, full=full, progress=progress, known=known
        )

    def backup(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None
    ) -> BackupReport:
        """A whole copy of this room as it is now, in a file of its own. Others may go on using the room."""
        return service.copying.backup(self._office, self._principal, path, overwrite=overwrite, progress=progress)

    def export(self, *, progress: Progress | None = None) -> Iterator[bytes]:
        """The whole room as JSON lines."""
        return service.portable.export_room(self._office, self._principal, progress)

    def load(self, lines: Iterable[bytes | str], *, progress: Progress | None = None) -> Imported:
        """Fill this empty room from an export."""
        return service.portable.import_room(self._office, self._principal, lines, progress)

    def markdown(self, message: Message) -> str:
        """A letter as text for a prompt, its content inside a fence it cannot break."""
        return service.present.markdown(message, os.urandom(8).hex())

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
        return service.present.digest(
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

"""The front door: open a room, get a mailbox, look after the room.

    import postroom
    room = postroom.open()
    room.mailbox("coder").send("researcher", "Which sort is stable?")

Below it stands the service; above it only the async face. No server is needed and none is started.
"""

from __future__ import annotations

import os
import time
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from .clock import RandomIds, SystemClock
from .core import (
    agents,
    alerts,
    compose,
    escalation,
    inbox,
    peers,
    portable,
    presentation,
    rename,
    retention,
    search,
    stats,
    threads,
    transfer,
)
from .core import doctor as core_doctor
from .core.authorize import OWNER, authorize
from .core.core import Core
from .core.doctor import LOG_END
from .core.portable import check_path
from .core.validation import check_count, listed, progress_of
from .errors import BadStore, Invalid, Missing, PostroomError
from .letter import Letter
from .mailbox import Mailbox
from .model.message import DEFAULT_SCOPE
from .model.names import check_agent, check_party, meant
from .model.report import BackupReport, Diagnosis, Level, error, note
from .settings import default_room, load_settings, misspelt
from .store.address import file_of, folder_of, is_blank, open_store, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType
    from typing import Unpack

    from .clock import Clock, Ids
    from .core.authorize import Principal
    from .core.portable import Imported
    from .core.retention import Sweep
    from .core.transfer import Copied
    from .model.agent import Agent
    from .model.alert import LostRing
    from .model.message import Message, Template
    from .model.record import Change, Cursor
    from .model.report import Finding, Flow, Progress, Stats, Trace
    from .model.task import Escalation
    from .model.thread import Conversation, Thread, Turn
    from .settings import Settings, Wanted
    from .store.protocol import Store


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
        self._core = Core(
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
        cursor = None if since is None else inbox.check_cursor(since)
        filter = inbox.as_filter(wanted)
        found = inbox.wait(self._core, self._principal, names, timeout, since=cursor, peek=peek, filter=filter)
        return None if found is None else Letter(self.mailbox(found.delivery.mailbox), found)

    @property
    def system(self) -> str:
        """What this post room is called among others."""
        return peers.system_id(self._core, self._principal, self.settings.system)

    def quarantined(self) -> list[str]:
        """The ids of letters that were found damaged on disk and set aside."""
        authorize(self._principal, "room")
        return self._core.store.quarantined()

    def mailboxes(self) -> list[str]:
        """Every name that ever wrote, was written to, or registered."""
        authorize(self._principal, "room")
        return self._core.store.mailboxes()

    def agents(
        self, *, scope: str | None = None, capability: str | None = None, gone: bool = False
    ) -> list[Agent]:
        """Who is here, what they can do, how they are and what they work on; with `gone`, those of old too."""
        return agents.agents(self._core, self._principal, scope=scope, capability=capability, gone=gone)

    def agent(self, name: str) -> Agent:
        meant_by_it = meant(check_party(name, "id"), self.settings.human)
        return agents.agent(self._core, self._principal, meant_by_it)

    def rename(self, old: str, new: str) -> None:
        """Give an agent another name: all that is its own follows, and mail to the old name still arrives."""
        rename.rename(self._core, self._principal, old, new)

    # -- templates

    def save_template(self, name: str, **fields: Any) -> Template:
        """Keep a recurring letter: body, subject, kind, priority, tags, with `{places}` in the text."""
        return compose.save(self._core, self._principal, name, **fields)

    def template(self, name: str) -> Template:
        return compose.get(self._core, self._principal, name)

    def templates(self) -> list[Template]:
        """All templates, by name."""
        return compose.everyone(self._core, self._principal)

    def delete_template(self, name: str) -> None:
        compose.delete(self._core, self._principal, name)

    # -- the operator's view

    def thread(self, id: str) -> list[Message]:
        """All letters of a thread, the oldest first."""
        return threads.thread(self._core, self._principal, None, id)

    def tagged(self, tag: str, scope: str | None = None) -> list[Message]:
        """All letters with a thread tag, the oldest first."""
        return threads.tagged(self._core, self._principal, None, tag, scope)

    def search(self, query: str, *, limit: int = 20, ranked: bool = False) -> list[Message]:
        """Letters by what they say, whoever sent or got them. See `Mailbox.search`."""
        return search.search(self._core, self._principal, None, query, limit=limit, ranked=ranked)

    def threads(self, limit: int = 50) -> list[Thread]:
        return threads.threads(self._core, self._principal, None, limit)

    def conversations(self, *, scope: str | None = None, limit: int = 50) -> list[Conversation]:
        return threads.conversations(self._core, self._principal, None, scope, limit)

    def turns(self, conversation: str) -> list[Turn]:
        return threads.turns(self._core, self._principal, None, conversation)

    def escalations(self, *, open_only: bool = True) -> list[Escalation]:
        """Questions that were escalated, the oldest first; `waits_for` says whose answer each waits for."""
        return escalation.escalations(self._core, self._principal, None, open_only=open_only)

    def cursor(self) -> Cursor:
        """Now. Keep it (`str(cursor)`), and ask later what happened since."""
        return inbox.cursor_of(self._core, self._principal)

    def changes(self, since: Cursor | str, limit: int = 1000) -> tuple[list[Change], Cursor]:
        """What happened after a cursor, and the cursor after that; Resync when it can no longer be told."""
        authorize(self._principal, "room")
        return self._core.store.changes(inbox.check_cursor(since), check_count(limit, "limit"))

    # -- care

    def sweep(self, *, progress: Progress | None = None) -> Sweep:
        """One round of the janitor: leases, expiry, archive, retention, deadlines, index. Call it now and then."""
        return retention.sweep(self._core, self._principal, progress)

    def archive(self, *, older_than: float | timedelta | None = None, progress: Progress | None = None) -> int:
        """Archive mail acknowledged more than so many seconds ago; without a time, as the settings say."""
        return retention.archive(self._core, self._principal, older_than, progress)

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
        return retention.purge(self._core, self._principal, older_than, keep, progress)

    def stats(self) -> Stats:
        """The room in numbers: letters, deliveries by state, what waits where and for how long."""
        return stats.room_stats(self._core, self._principal)

    def flow(self, last: Flow | None = None) -> Flow:
        """What waits now, and what was sent and done since the last look: `flow = room.flow(flow)`."""
        return stats.flow(self._core, self._principal, last)

    def trace(self, id: str) -> Trace:
        """The life of one letter, with every delivery and all that came of it."""
        return stats.trace(self._core, self._principal, None, id)

    def dead_rings(self) -> list[LostRing]:
        """Rings that were given up, for letters that are still unread, at all mailboxes."""
        return alerts.dead_rings(self._core, self._principal, None)

    def retry_rings(self, *, way: str | None = None, ids: str | Sequence[str] | None = None) -> int:
        """Try dead rings again; gives how many."""
        return alerts.retry_rings(self._core, self._principal, None, way=way, ids=ids)

    def doctor(self, *, repair: bool = False, full: bool = False, progress: Progress | None = None) -> Diagnosis:
        """Check this room's health, with a real write and read; `repair` mends what is safe to mend."""
        from .model.report import warning  # noqa: PLC0415 - rare

        likely = misspelt()
        known = [
            warning("settings", f"{name} is not a setting and is ignored", f"did you mean {meant}?")
            for name, meant in likely.items()
        ]
        return core_doctor.doctor(
            self._core, self._principal, repair=repair, full=full, progress=progress, known=known
        )

    def backup(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None
    ) -> BackupReport:
        """A whole copy of this room as it is now, in a file of its own. Others may go on using the room."""
        return portable.backup(self._core, self._principal, path, overwrite=overwrite, progress=progress)

    def export(self, *, progress: Progress | None = None) -> Iterator[bytes]:
        """The whole room as JSON lines."""
        return portable.export_room(self._core, self._principal, progress)

    def load(self, lines: Iterable[bytes | str], *, progress: Progress | None = None) -> Imported:
        """Fill this empty room from an export."""
        return portable.import_room(self._core, self._principal, lines, progress)

    def markdown(self, message: Message) -> str:
        """A letter as text for a prompt, its content inside a fence it cannot break."""
        return presentation.markdown(message, os.urandom(8).hex())

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
        return presentation.digest(
            shown, os.urandom(8).hex(), budget=budget, longest=longest, total=max(total or 0, len(messages))
        )

    def close(self) -> None:
        """Let go of files. Nothing needs to be saved. A room that is used again opens itself again."""
        self._core.store.close()

    def __repr__(self) -> str:
        return f"<Room {self.settings.store or 'in memory'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# Care from outside a room: look after one that may not open, put a backup back in its place, and carry mail from
# one room into another.
#
# What needs an open room is a verb of `Room`; this stands above it.

AROUND = frozenset({"permissions", "folder", "file system", "space", "bells", "place", "settings"})  # not inside
PATIENCE = 5.0  # seconds to wait for a room that is to be salvaged


def doctor(
    store: str | os.PathLike[str] | None = None,
    *,
    repair: bool = False,
    full: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Diagnosis:
    """Check the health of a room, also of one that cannot be opened. Makes no room where there is none."""
    progress_of(progress)
    try:
        chosen = chosen_settings(store, settings)
        path, place = _file(chosen), place_of(chosen.store)
    except Invalid as refused:
        return Diagnosis(findings=(_refused("settings", refused),))
    if place is not None and not _is_there(Path(place)):
        missing = note("room", f"there is no room at {place} yet", "it is made when it is first opened")
        return Diagnosis(findings=(missing,))
    try:
        with open(store, **settings) as room:
            findings = room.doctor(repair=repair, full=full, progress=progress).findings
    except PostroomError as refused:
        findings = (_refused("room", refused), *_around(path, repair=repair))
    if path is not None and repair and any(_is_damage(finding) for finding in findings):
        findings = (*findings, *_salvaged(Path(os.path.realpath(path))))
    return Diagnosis(findings=findings)


def _is_there(path: Path) -> bool:
    """A name that no file can have is the caller's mistake, and not what ails a room."""
    try:
        return path.exists() and not is_blank(str(path))
    except OSError as broken:
        raise BadStore(f"{path} cannot be reached: {broken.strerror}", field="store") from None


def restore(
    backup: str | os.PathLike[str],
    store: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> BackupReport:
    """Make a room what a backup holds. Nobody may have the room open; one that holds mail is only replaced with
    `overwrite`, and is then kept beside the new one.
    """
    from .store.sqlite.backup import put_back  # noqa: PLC0415 - rare

    chosen = chosen_settings(store, settings)
    path, tell = _file(chosen), progress_of(progress)
    if folder_of(chosen.store) is not None:
        hint = "restore into a room in a file of its own, then copy that one into the folder"
        raise BadStore("a backup is a room in a file, and this room is a folder", field="store", hint=hint)
    if path is None:
        raise BadStore("a room in memory cannot be restored", field="store", hint="use load() with an export")
    began = time.monotonic()
    letters, kept = put_back(
        check_path(backup, "backup"), path, overwrite=overwrite, busy_timeout=chosen.busy_timeout, progress=tell
    )
    return BackupReport(
        path=str(path),
        letters=letters,
        bytes=path.stat().st_size,
        seconds=time.monotonic() - began,
        kept=None if kept is None else str(kept),
    )


def copy_room(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    move: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Copied:
    """Copy all mail of one room into another, of whatever kind each is. Again, it copies only what is new.

    With `move`, what is open is worked on in the other room from then on: at the source it is done and archived.
    """
    here, there, places = _both(source, target, settings)
    try:
        return transfer.copy_room(here, there, OWNER, move=move, places=places, progress=progress)
    finally:
        there.store.close()
        here.store.close()


def follow_room(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    move: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Iterator[Copied]:
    """The same, and then whatever comes, for as long as one asks for more."""
    here, there, places = _both(source, target, settings)
    try:
        yield from transfer.follow(here, there, OWNER, move=move, places=places, progress=progress)
    finally:
        there.store.close()
        here.store.close()


def _both(
    source: str | os.PathLike[str], target: str | os.PathLike[str], settings: dict[str, Any]
) -> tuple[Core, Core, tuple[str, str]]:
    """Both rooms, open, and where they lie. Everything is refused before anything is made."""
    chosen = [_named(address, field, settings) for address, field in ((source, "source"), (target, "target"))]
    here, there = (os.path.realpath(place_of(each.store) or "") for each in chosen)
    if here == there:
        raise BadStore(f"{here} is the room that it is copied from", field="target", hint="name another")
    if not os.path.lexists(here):
        raise Missing(f"there is no room at {here}", field="source", hint="nothing was copied, and none is made")
    source_core = _core(chosen[0])
    try:
        return source_core, _core(chosen[1]), (here, there)
    except BaseException:
        source_core.store.close()
        raise


def _named(address: str | os.PathLike[str], field: str, settings: dict[str, Any]) -> Settings:
    if not address:
        raise BadStore("names no room", field=field)
    try:
        chosen = chosen_settings(address, settings)
        place = place_of(chosen.store)
    except BadStore as refused:
        refused.field = field
        raise
    if place is None:
        raise BadStore("a room in memory is nobody else's to copy", field=field, hint="name a file or a folder")
    return chosen


def _core(chosen: Settings) -> Core:
    return open_with(chosen, SystemClock())._core  # noqa: SLF001 - a copy goes from room to room, not by verbs


def _file(chosen: Settings) -> Path | None:
    file = file_of(chosen.store) if chosen.store else default_room()
    return None if file is None else Path(file)


def _refused(check: str, refused: PostroomError) -> Finding:
    what = f"{refused.field}: {refused.message}" if refused.field else refused.message
    return error(check, what, refused.hint or "keep a copy of the room's files, then restore a backup")


def _is_damage(finding: Finding) -> bool:
    """Is something broken inside that could not be mended in its place?"""
    if finding.repaired or finding.check in AROUND:
        return False
    return finding.level is Level.ERROR or (finding.level is Level.WARNING and finding.check == LOG_END)


def _salvaged(path: Path) -> Iterator[Finding]:
    """Save what can be read of a room that is damaged; it is left as it is."""
    from shlex import quote  # noqa: PLC0415 - rare

    from .store.sqlite.salvage import salvage  # noqa: PLC0415

    if not Path(f"{path}.lock").exists():  # no room ever lay here
        return
    force = f" --room {quote(str(path))} --force"
    try:
        saved = salvage(path, PATIENCE)
    except PostroomError as refused:
        yield _refused("salvage", refused)
        return
    if saved is None:
        anew = f"without one, stop all agents and move {path} and its {path.name}-* and {path.name}.* files away"
        yield note(
            "salvage", "no letter could be read", f"postroom restore FILE{force} brings back a backup; {anew}"
        )
        return
    text = (
        f"{saved.letters} letters could be read and lie in {saved.path}; {saved.lost} others are known to be lost"
    )
    yield note("salvage", text, f"postroom restore {quote(str(saved.path))}{force} makes it the room")


def _around(path: Path | None, *, repair: bool) -> Iterator[Finding]:
    """What can be told of a room that does not open. What is no room at all is not ours to judge or to mend."""
    from .store.sqlite.place import examine_place, is_room_file  # noqa: PLC0415 - rare

    if path is not None and is_room_file(path):
        yield from examine_place(Path(os.path.realpath(path)), repair=repair)

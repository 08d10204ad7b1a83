"""The Python API's entry: open a room, get a mailbox, and look after the room.

    import postroom
    room = postroom.open()
    room.mailbox("coder").send("researcher", "Which sort is stable?")

`Room` holds a `Core` and the principal that it acts for; its methods are the verbs of the whole room. No server is
needed and none is started. As in `mailbox.py`, rare verbs import their module of `core` when they are called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec.structs import replace

from .clock import SystemClock
from .core import inbox, peers, presentation
from .core.authorize import OWNER, authorize
from .core.core import core_of, open_core
from .core.proof import people_names
from .core.verb import perform, request
from .errors import Invalid
from .letter import Letter
from .mailbox import Mailbox
from .model.names import AT, check_agent
from .model.values import as_list, check_count
from .reader import Reader
from .settings import chosen_settings, misspelt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import timedelta
    from types import TracebackType
    from typing import TypeVar, Unpack

    from .clock import Clock, Ids
    from .core.authorize import Principal
    from .core.core import Core
    from .core.portable import Imported
    from .core.retention import Sweep
    from .core.verb import Runs
    from .keywords import TemplateFields, Wanted
    from .model.agent import Agent
    from .model.message import Message, Template
    from .model.record import Change, Cursor
    from .model.report import BackupReport, Diagnosis, Flow, Progress, Stats
    from .settings import Settings
    from .store.protocol import Store
    from .task import Task

    T = TypeVar("T")
    U = TypeVar("U")


def open(store: str | os.PathLike[str] | None = None, **settings: Any) -> Room:
    """Open a room, and create it if it does not exist.

    `store` is `sqlite:/path/to/room.db`, a path, or `memory:`. Without it, in this order: POSTROOM_STORE, the
    room of the project around the working folder (`postroom init` makes one), the config file, the user's own
    room. Every other setting may be given by name.
    """
    return open_with(chosen_settings(store, settings), SystemClock())


def open_with(chosen: Settings, clock: Clock, *, makes: bool = True) -> Room:
    """Open a room with settings that are chosen already. Without `makes`, its folder must exist."""
    principal = OWNER
    if chosen.human_key:
        from .core.key_file import KeyFile

        principal = replace(OWNER, signer=KeyFile(chosen.human_key))
    return room_of(open_core(chosen, clock, makes=makes), principal)


def room_of(core: Core, principal: Principal) -> Room:
    """Return the room of this core, for this principal."""
    room = Room.__new__(Room)
    room.core, room.principal, room.settings = core, principal, cast("Settings", core.limits)
    return room


class Room(Reader):
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
        self.settings = settings  # the settings in force
        self.principal = principal  # for whom this room acts
        self.core = core_of(store, settings, clock, ids)

    def acting_as(self, principal: Principal) -> Room:
        """Return this room for another principal. Servers that authenticate their callers use it.

        Args:
            principal: for whom the returned room acts
        """
        from copy import copy

        room = copy(self)
        room.principal = principal
        return room

    def mailbox(self, name: str) -> Mailbox:
        """Return an agent's mailbox. It need not exist: a program can wait for mail before any is sent.

        Args:
            name: the agent's name
        """
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
        """Return the next letter at any of these mailboxes; None after `timeout` seconds.

        Args:
            mailboxes: whose mail, one name or several
            timeout: how long to wait, in seconds
            since: a cursor: what came after it, read or not, so that nothing is missed
            peek: stamp nothing as read
            **wanted: only letters with these properties: kinds, min_priority, sender, thread, thread_tag, tag,
                scope
        """
        names = as_list(mailboxes, "mailboxes")
        if not names:
            raise Invalid("no agent is named", field="mailboxes", hint="an agent's name, or a list of them")
        first, *also = (check_agent(name, "mailboxes") for name in names)
        params = {
            "agent_id": first,
            "also": also,
            "timeout": timeout,
            "since": None if since is None else str(since),
            "peek": peek,
            **wanted,
        }
        return self._wait(request(inbox.Wait, params), self._letter)

    @property
    def system(self) -> str:
        """The name of this room among other systems."""
        return self._perform(peers.GetSystem)

    def quarantined(self) -> list[str]:
        """Return the ids of letters that were found damaged on disk and set aside."""
        from .core import doctor as core_doctor

        return self._perform(core_doctor.ListQuarantined)

    def mailboxes(self) -> list[str]:
        """Return every name that ever wrote, was written to, or registered."""
        from .core import agents

        return self._perform(agents.ListMailboxes)

    def agents(
        self, *, scope: str | None = None, capability: str | None = None, gone: bool = False
    ) -> list[Agent]:
        """Return the agents with card, presence and current tasks; with `gone`, former ones too.

        An operator also gets the mailboxes for which nobody registered: `agent.registered` is False.

        Args:
            scope: only of this team
            capability: only agents with this capability
            gone: also agents that have left
        """
        from .core import agents

        return self._perform(agents.ListAgents, scope=scope, capability=capability, gone=gone).agents

    def agent(self, name: str) -> Agent:
        """Return one agent with card, presence and current tasks.

        Args:
            name: its name
        """
        from .core import agents

        return self._perform(agents.GetAgent, name=name)

    # -- templates

    def save_template(self, name: str, **fields: Unpack[TemplateFields]) -> Template:
        """Save a recurring letter: body, subject, kind, priority, tags, with `{placeholders}` in the text.

        Args:
            name: its name
            **fields: body, subject, kind, priority and tags; texts may hold `{placeholders}`
        """
        from .core import templates

        return self._perform(templates.SaveTemplate, name=name, **fields)

    def template(self, name: str) -> Template:
        """Return a template by its name.

        Args:
            name: its name
        """
        from .core import templates

        return self._perform(templates.GetTemplate, name=name)

    def templates(self) -> list[Template]:
        """Return all templates, by name."""
        from .core import templates

        return self._perform(templates.ListTemplates)

    def delete_template(self, name: str) -> None:
        """Delete a template.

        Args:
            name: its name
        """
        from .core import templates

        self._perform(templates.DeleteTemplate, name=name)

    # -- the operator's view

    def dead(self, limit: int | None = None) -> list[Letter]:
        """Return the dead letters of all mailboxes, the oldest first; `delivery.reason` says why.

        Args:
            limit: how many at most
        """
        from .core.dead import Dead

        found = self._ask(Dead, limit=limit).letters
        return [
            Letter(self.mailbox(f.message.sender if AT in f.delivery.mailbox else f.delivery.mailbox), f)
            for f in found
        ]

    def tasks(self, *, states: str | Sequence[str] | None = None, limit: int = 50) -> list[Task]:
        """Return the tasks of all mailboxes, each as its giver sees it; the most recently moved first.

        Args:
            states: only in these states
            limit: how many at most
        """
        from .core import tasks
        from .task import Task

        found = self._ask(tasks.ListTasks, states=states, limit=limit)
        return [Task(self.mailbox(one.standing.giver), one.standing, session=one.session) for one in found]

    def cursor(self) -> Cursor:
        """Return the current position. Keep it (`str(cursor)`) to ask later for the changes since."""
        return inbox.current_cursor(self.core, self.principal)

    def _perform(self, verb: Callable[..., Runs[T]], **params: Any) -> T:
        return perform(self.core, self.principal, request(verb, params))

    def _ask(self, verb: Callable[..., Runs[T]], **params: Any) -> T:
        """Perform a verb on the whole room, not on the mailbox of an agent for whom this room acts."""
        authorize(self.principal, "room")
        return self._perform(verb, **params)

    def _wait(self, request: Runs[T], found: Callable[[T], U]) -> U:
        """Carry out a request that waits for mail. Last step of a method, because the async face has its own."""
        return found(perform(self.core, self.principal, request))

    def _letter(self, next_letter: inbox.NextLetter) -> Letter | None:
        found = next_letter.letter
        return None if found is None else Letter(self.mailbox(found.delivery.mailbox), found)

    def changes(self, since: Cursor | str, limit: int = 1000) -> tuple[list[Change], Cursor]:
        """Return the changes after a cursor, and the next cursor; raise Resync if they are not kept any more.

        Args:
            since: a cursor
            limit: how many at most
        """
        found = self._perform(inbox.GetChanges, since=since, limit=limit)
        return found.changes, found.cursor

    # -- maintenance

    def sweep(self, *, progress: Progress | None = None) -> Sweep:
        """Do one round of the janitor: leases, expiry, archive, retention, deadlines, index. Call it regularly.

        Args:
            progress: called now and then with what is done and of how much
        """
        from .core import retention

        return self._perform(retention.SweepRoom, progress=progress)

    def archive(self, *, older_than: float | timedelta | None = None, progress: Progress | None = None) -> int:
        """Archive mail acknowledged more than so many seconds ago; without a time, as the settings say.

        Args:
            older_than: for how long it has been done, in seconds
            progress: called now and then with what is done and of how much
        """
        from .core import retention

        return self._perform(retention.Archive, older_than=older_than, progress=progress)

    def purge(
        self,
        *,
        older_than: float | timedelta | None = None,
        keep: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete letters that are done or dead everywhere, and return how many.

        Deletes those settled more than so many seconds ago, and all but the newest `keep`; without either, as the
        settings say. Open mail is never touched.

        Args:
            older_than: for how long they have been settled, in seconds
            keep: how many settled letters stay
            progress: called now and then with what is done and of how much
        """
        from .core import retention

        return self._perform(retention.Purge, older_than=older_than, keep=keep, progress=progress)

    def stats(self) -> Stats:
        """Return the room in numbers: letters, deliveries by state, what waits where and for how long."""
        from .core import stats

        return self._perform(stats.RoomStats)

    def flow(self, last: Flow | None = None) -> Flow:
        """Return what waits now, and what was sent and settled since the last call: `flow = room.flow(flow)`.

        Args:
            last: what the last call returned
        """
        from .core import stats

        return self._perform(stats.GetFlow, last=last)

    def doctor(self, *, repair: bool = False, full: bool = False, progress: Progress | None = None) -> Diagnosis:
        """Check this room's health, with a real write and read; `repair` mends what is safe to mend.

        Args:
            repair: mend what is safe to mend
            full: look at every letter
            progress: called now and then with what is done and of how much
        """
        from .core import doctor as core_doctor
        from .model.report import warning

        known = [
            warning("settings", f"{name} is not a setting and is ignored", f"did you mean {likely}?")
            for name, likely in misspelt().items()
        ]
        return self._perform(core_doctor.Doctor, repair=repair, full=full, progress=progress, known=known)

    def backup(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None
    ) -> BackupReport:
        """Copy this room as it is now into a file of its own. Other processes may go on using the room.

        Args:
            path: the file
            overwrite: replace a file that is there
            progress: called now and then with what is done and of how much
        """
        from .core import portable

        return self._perform(portable.Backup, path=path, overwrite=overwrite, progress=progress)

    def export(self, *, progress: Progress | None = None) -> Iterator[bytes]:
        """Yield the whole room as JSON lines.

        Args:
            progress: called now and then with what is done and of how much
        """
        from .core import portable

        return self._perform(portable.Export, progress=progress)

    def load(self, lines: Iterable[bytes | str], *, progress: Progress | None = None) -> Imported:
        """Fill this empty room from an export.

        Args:
            lines: the lines of the export
            progress: called now and then with what is done and of how much
        """
        from .core import portable

        return self._perform(portable.Import, lines=lines, progress=progress)

    def markdown(self, message: Message) -> str:
        """Return a letter as text for a prompt; its content stands in a fence that it cannot break.

        Args:
            message: a letter
        """
        return presentation.markdown(message, os.urandom(8).hex(), people=people_names(self.core))

    def digest(
        self,
        messages: Sequence[Message],
        *,
        budget: int = 4000,
        most: int = 5,
        longest: int = 500,
        total: int | None = None,
    ) -> str:
        """Return the first letters as text for a prompt, at most `budget` characters. `total`: of how many.

        Args:
            messages: letters
            budget: characters at most
            most: letters at most
            longest: characters of one letter at most
            total: how many letters there are, if not all are given
        """
        check_count(budget, "budget", least=0)
        shown = messages[: check_count(most, "most")]
        longest = check_count(longest, "longest", least=0)
        return presentation.digest(
            shown,
            os.urandom(8).hex(),
            budget=budget,
            longest=longest,
            total=max(total or 0, len(messages)),
            people=people_names(self.core),
        )

    def close(self) -> None:
        """Close the room's files. Nothing needs to be saved; a room that is used again reopens itself."""
        self.core.store.close()

    def __repr__(self) -> str:
        return f"<Room {self.settings.store or 'in memory'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""`MailboxManager`: the eight methods of the design, with its arguments and results. Decides nothing by itself.

Any number of processes and threads may have one over the same folder, ours and strangers'. A mail that `send` took
is on stable storage; a file that is no mail stops no `poll`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .. import room, service
from ..errors import IllegalMove, Invalid, LeaseLost, UnknownMessage
from ..model.card import Status
from ..model.delivery import State
from ..model.names import check_agent, check_party
from ..model.query import Query
from ..model.task import answer
from ..policy.retry import latest_retry
from ..service.authorize import OWNER
from ..service.given import check_count
from . import agents, letters

if TYPE_CHECKING:
    import os
    from types import TracebackType
    from typing import Self

    from ..store.files.store import FileStore

DEFAULT_ROOT = "~/.nanobot/mailboxes"
_FILE = re.compile(r"[^/\\\0.][^/\\\0]{0,250}\.msg\.json")


class MailboxManager:
    """Mailboxes of agents, in a folder."""

    def __init__(self, mailboxes_root: str | os.PathLike[str] = DEFAULT_ROOT, **settings: Any) -> None:
        """`settings` are those of any room (docs/reference.md), such as `durability="process"`."""
        self.root = Path(mailboxes_root).expanduser().absolute()
        self.room = room.open(f"files:{self.root}?layout=nanobot", **settings)
        self._office = self.room._office  # noqa: SLF001 - verbs that no other design has
        self._cards: dict[str, dict[str, Any]] = {}  # what was registered here, to come back with

    # -- agents

    def register(self, agent_id: str, card: dict[str, Any]) -> None:
        """Write an agent's card, over any other, and make its folders. It is online from now on."""
        name = check_agent(agent_id, "agent_id")
        agents.register(self._office, name, card)
        self._cards[name] = {**card}

    def heartbeat(self, agent_id: str) -> None:
        """A sign of life. Who is not registered (any more) is put back, with the card it gave here, if it did."""
        name = check_agent(agent_id, "agent_id")
        if agents.is_registered(self._office, name):
            agents.heartbeat(self._office, name)
        else:
            agents.register(self._office, name, self._cards.get(name, {}))

    def update_status(self, agent_id: str, status: str, current_tasks: list[str] | None = None) -> None:
        """idle, busy, offline, or a word of its own; without `current_tasks`, these stay as they were."""
        name = check_agent(agent_id, "agent_id")
        if not agents.is_registered(self._office, name):
            if status == Status.OFFLINE:
                return
            agents.register(self._office, name, self._cards.get(name, {}))
        agents.update_status(self._office, name, status, current_tasks)

    def list_online_agents(self) -> list[dict[str, Any]]:
        """Everybody who is not offline: neither said so, nor was silent for too long."""
        return agents.online(self._office)

    def get_agent(self, agent_id: str) -> dict[str, Any] | None:
        """One agent as the registry shows it; None if there is none."""
        return agents.entry(self._office, check_party(agent_id, "agent_id"))

    # -- mail

    def send(self, from_id: str, to_id: str, msg: dict[str, Any]) -> None:
        """Mail to an agent: on stable storage when this returns. What is missing of id, from, to and timestamp is
        filled in, in `msg` too.
        """
        sender, to = check_agent(from_id, "from_id"), check_party(to_id, "to_id")
        post = letters.post(self._office, sender, to, msg)
        service.sending.commit_posts(self._office, [post], [post], answer)

    def poll(self, agent_id: str, limit: int | None = None) -> list[dict[str, Any]]:
        """What waits in an inbox, in the order in which it came, each as it stands in its file, with `_filename`.

        Consumes nothing: what is not marked as processed comes again. With a limit: the first so many.
        """
        name = check_agent(agent_id, "agent_id")
        moment = self._office.now()
        service.moving.let_time_pass(self._office, moment, (name,))
        query = Query(
            mailbox=name,
            states=(State.UNREAD,),
            offered_at=moment.wall,
            due_at=moment.wall,
            due_most=latest_retry(moment.wall, self._office.limits),
            order="age",
            limit=None if limit is None else check_count(limit, "limit"),
        )
        found = self._office.store.find(query)
        return [fields | {"_filename": file} for file, fields in self._files.sheets(found)]

    def mark_processed(self, agent_id: str, filename: str) -> None:
        """Move a mail to `processed/`. One that is not in the inbox any more is left where it is."""
        name = check_agent(agent_id, "agent_id")
        if not isinstance(filename, str) or not _FILE.fullmatch(filename):
            raise Invalid(f"{filename!a} is no name of a mail", field="filename", hint="the _filename of a poll")
        id = self._files.id_at(name, "inbox", filename)
        if id is None:
            return
        with suppress(UnknownMessage, IllegalMove):  # somebody was quicker
            held = service.reading.received(self._office, name, id)
            if held.delivery.state is State.CLAIMED:
                raise LeaseLost(f"{filename} is held by another worker", field="filename")
            service.holding.ack(self._office, OWNER, name, [held])

    # -- care

    def close(self) -> None:
        """Let go of files. A manager that is used again opens them again."""
        self.room.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _files(self) -> FileStore:
        return cast("FileStore", self._office.store)

"""Our own at the server: who of them is shown there, under which ids, and what was said of each."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..lines.line import MapRefusal
from ..wire.map_names import GUEST, REGISTER, UNREGISTER
from . import asking, directory
from .neighbours import brought_by
from .scoping import Scoping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..desk import Desk
    from ..lines.line import Line
    from ..wire.map_addresses import Role
    from .memory import Memory
    from .wants import Wants

log = logging.getLogger("postroom")


class Showing:
    """Of one visit. `own`: what the link itself is called, its agent there and its mailbox here."""

    def __init__(self, desk: Desk, wants: Wants, memory: Memory, own: str) -> None:
        self._desk = desk
        self._room = desk.room.acting_as(directory.LINK)
        self._wants = wants
        self._memory = memory
        self.own = own
        self.scoping = Scoping()
        self.names: dict[str, str] = {}  # by the ids they have there
        self._told: dict[str, dict[str, Any]] = {}  # by name: what the server was told of each
        self._exposed: dict[str, dict[str, Any]] = {}  # by name: what it is to be told
        self._takes_again = False  # who is there already may say anew what it is
        self._unwanted: set[str] = set()  # those that the server does not take; it was said
        self._silenced: set[str] = set()  # those that write and are not to be shown; it was said

    @property
    def ids(self) -> dict[str, str]:
        """By their names."""
        return {name: id for id, name in self.names.items()}

    async def come_back(self, ids: Iterable[str], *, takes_again: bool) -> None:
        """The server gave these back to us: their mail may come at once."""
        self._takes_again = takes_again
        self._exposed = await self._desk.run_slow(self._to_be_shown)
        self.names = {id: id for id in ids if id in self._exposed}

    async def introduce(self, line: Line) -> None:
        """The link's own agent comes first: what is said to our session is said to it."""
        where = {"scopes": [self._wants.scope]} if self._wants.scope else {}
        told = await line.ask(REGISTER, name=self.own, agentId=self.own, role="inbox", **where, **self._brought())
        self._is_called(_id_of(told), self.own)
        await self.scoping.join(line, told["agent"], where.get("scopes", ()))

    async def show(self, line: Line) -> None:
        """Whoever came or changed is told of; who went is taken away."""
        self._exposed = await self._desk.run_slow(self._to_be_shown)
        ids = self.ids
        for name in ids.keys() - self._exposed.keys() - {self.own}:
            with suppress(MapRefusal):
                await line.ask(UNREGISTER, agentId=ids[name])
            del self.names[ids[name]]
        for name, said in self._exposed.items():
            if name not in ids or (self._takes_again and said != self._told.get(name)):
                await self._show(line, name, said)

    def _to_be_shown(self) -> dict[str, dict[str, Any]]:
        return directory.exposed(self._room, self._wants.expose, self._wants.scope, self._memory.writers)

    async def _show(self, line: Line, name: str, said: dict[str, Any]) -> None:
        self._told[name] = said
        try:
            told = await line.ask(REGISTER, name=name, agentId=name, **said, **self._brought())
        except MapRefusal as refused:
            if name not in self._unwanted:
                log.warning("%s is not shown at the MAP server: %s", name, refused)
            self._unwanted.add(name)  # who holds its name may go
        else:
            self._is_called(_id_of(told), name)
            self._unwanted.discard(name)
            await self.scoping.join(line, told["agent"], said.get("scopes", ()))

    def _brought(self) -> dict[str, Any]:
        return {"metadata": {GUEST: {"of": self.own}}}

    def _is_called(self, id: str, name: str) -> None:
        self.names[id] = name
        self._memory.is_called(id, name)

    async def has_lost(self, line: Line, name: str) -> bool:
        """The server does not let it speak. Has somebody there its name by now? Then it is not shown any more."""
        id = self.ids.get(name)
        if id is None or name == self.own or brought_by(await asking.one(line, id)) == self.own:
            return False
        self._lose(id)
        return True

    def compare(self, rows: Iterable[Any]) -> None:
        """Whom of ours the server lists as its own, it has taken from us."""
        for row in rows:
            id = row.get("id") if isinstance(row, dict) else None
            is_ours = isinstance(id, str) and self.names.get(id, self.own) != self.own
            if self._takes_again and is_ours and brought_by(row) != self.own:
                self._lose(row["id"])

    def _lose(self, id: str) -> None:
        name = self.names.pop(id)
        self._unwanted.add(name)
        told = "%s is not shown at the MAP server any more, where somebody has its name: answers go to %s"
        log.warning(told, name, self.own)

    async def be_answerable(self, line: Line, sender: str) -> None:
        """Who writes there is shown there from then on, also if it never registered here."""
        if sender == self.own or sender in self._silenced:
            return
        if sender in self._memory.writers:
            self._memory.wrote(sender)  # once more
        elif await self._desk.run_slow(lambda: directory.may_answer_to(self._room, self._wants.expose, sender)):
            self._memory.wrote(sender)
            await self.show(line)
        else:
            self._silenced.add(sender)
            log.warning("%s writes to the MAP server and is not shown there: answers go to %s", sender, self.own)

    def members(self, meant: str | Role) -> list[str]:
        """Who is in a scope, or has a role."""
        if isinstance(meant, str):
            meant = self.scoping.name_of(meant)
        told = {name: self._exposed[name] for name in self.names.values() if name in self._exposed}
        return directory.members(told, meant)


def _id_of(told: Mapping[str, Any]) -> str:
    agent = told.get("agent")
    id = agent.get("id") if isinstance(agent, dict) else None
    if not isinstance(id, str) or not id:
        raise MapRefusal({"message": "it registers agents and gives them no id"})
    return id

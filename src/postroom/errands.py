"""What a mailbox does besides its daily mail: send from a template, take a letter back, escalate, tell
somebody of mail, refuse it. Decides nothing: calls the service.

`Mailbox` has all of these verbs; they stand here so that both files can be read in one sitting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from .fields import Fields
    from .model.escalation import Escalation
    from .model.message import Message
    from .model.ring import Later, LostRing, Rung
    from .service.authorize import Principal
    from .service.office import Office
    from .service.sending import Receipt


class Errands:
    """The verbs of a mailbox for special occasions."""

    name: str
    _office: Office
    _caller: Principal

    def unsend(self, id: str) -> Message:
        """Take back a letter that was sent here, from all its recipients or none, while nobody has claimed or
        settled it. Gives the letter, to be mended and sent anew.
        """
        return service.unsending.unsend(self._office, self._caller, self.name, id)

    def sent(self, limit: int = 20) -> list[Message]:
        """What was sent here, the newest first."""
        return service.search.sent(self._office, self._caller, self.name, limit=limit)

    def send_template(
        self, to: Any, name: str, values: Mapping[str, Any] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        """Send a letter made from a template of the room, with a value for each of its places."""
        service.compose.check_fields(fields)
        draft = service.templates.template_draft(self._office, self._caller, self.name, to, name, values, **fields)
        return service.sending.send(self._office, self._caller, [draft])[0]

    # -- escalation

    def escalate(
        self, body: Any = None, *, reason: str, ladder: Sequence[str] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        """Ask the one who stands above on the ladder. The answer comes into the same thread. A question that
        nobody answers climbs, by `room.sweep()`.
        """
        service.compose.check_fields(fields)
        return service.escalating.escalate(
            self._office, self._caller, self.name, body, reason=reason, ladder=ladder, **fields
        )

    def escalations(self, *, open_only: bool = True) -> list[Escalation]:
        """What was escalated by this mailbox or to it, the oldest first."""
        return service.escalating.escalations(self._office, self._caller, self.name, open_only=open_only)

    def resolve(self, id: str) -> Escalation:
        """Close an escalation without an answer; it climbs no further."""
        return service.escalating.resolve(self._office, self._caller, self.name, id)

    # -- telling somebody of mail

    def begin_rings(self, way: str, *, backlog: bool = False) -> int:
        """Begin to ring in a way of your own (`exec`, `webhook:1`): what is unread already counts as told, unless
        `backlog`. Gives how many letters that is; after the first time, 0.
        """
        return service.ringing.begin(self._office, self._caller, self.name, way, backlog=backlog)

    def try_ring(
        self, way: str, *, may_ring: Callable[[], bool] | None = None, within: float | None = None
    ) -> Rung | Later:
        """Is it time to tell somebody of mail? Whoever gets a `Rung` does it, once; `Later` says when to look
        again. A ring is a hint: it moves no letter. Who says `within` how many seconds will say `ring_done` then,
        or it counts as failed: so no ring is lost with who should have rung.
        """
        return service.ringing.try_ring(self._office, self._caller, self.name, way, may_ring, within=within)

    def wait_to_ring(
        self,
        way: str,
        timeout: float = 30.0,
        *,
        may_ring: Callable[[], bool] | None = None,
        within: float | None = None,
    ) -> Rung | None:
        """The next ring, as soon as it is time for one; None when the time is up. `may_ring` is asked before;
        `within` as in `try_ring`.
        """
        return service.ringing.wait_to_ring(
            self._office, self._caller, self.name, way, timeout, may_ring, within=within
        )

    def ring_done(self, way: str, ids: str | Sequence[str]) -> None:
        """The ring for these letters was carried out, as was promised by `within`."""
        service.lost_rings.ring_done(self._office, self._caller, self.name, way, ids)

    def ring_failed(self, way: str, ids: str | Sequence[str], why: str) -> int:
        """The ring for these letters did not get through: it is tried again later. Gives for how many it is given
        up.
        """
        return service.lost_rings.ring_failed(self._office, self._caller, self.name, way, ids, why)

    def dead_rings(self) -> list[LostRing]:
        """Rings that were given up, for letters that are still unread."""
        return service.lost_rings.dead_rings(self._office, self._caller, self.name)

    def retry_rings(self, *, way: str | None = None, ids: str | Sequence[str] | None = None) -> int:
        """Try dead rings again; gives how many."""
        return service.lost_rings.retry_rings(self._office, self._caller, self.name, way=way, ids=ids)

    def mark_shown(self, ids: str | Sequence[str], host: str, where: str = "", *, read: bool = True) -> int:
        """These letters were put before a model or a person: they are stamped as read, unless only their headings
        were shown. Gives how many of them are here.
        """
        return service.auditing.mark_shown(self._office, self._caller, self.name, ids, host, where, read=read)

    # -- whose mail is refused

    def block(self, name: str) -> list[str]:
        """Refuse mail from this name: its sender gets NotAllowed. Gives all names that are refused."""
        return service.guarding.block(self._office, self._caller, self.name, name)

    def unblock(self, name: str) -> list[str]:
        """Take mail from this name again. Gives all names that are still refused."""
        return service.guarding.unblock(self._office, self._caller, self.name, name)

    def blocked(self) -> list[str]:
        """The names whose mail is refused here."""
        return service.guarding.blocked(self._office, self._caller, self.name)

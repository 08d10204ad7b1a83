"""What a mailbox does besides its daily mail: take a letter back, refuse somebody's mail.
Decides nothing: calls the service.

`Mailbox` has all of these verbs; they stand here so that both files can be read in one sitting.
"""

from __future__ import annotations

from .model.message import Message
from .service import guarding, unsending
from .service.authorize import Principal
from .service.office import Office


class Errands:
    """The verbs of a mailbox for special occasions."""

    name: str
    _office: Office
    _caller: Principal

    def unsend(self, id: str) -> Message:
        """Take back a letter that was sent here, from all its recipients or none, while nobody has claimed or
        settled it. Gives the letter, to be mended and sent anew.
        """
        return unsending.unsend(self._office, self._caller, self.name, id)

    # -- whose mail is refused

    def block(self, name: str) -> list[str]:
        """Refuse mail from this name: its sender gets NotAllowed. Gives all names that are refused."""
        return guarding.block(self._office, self._caller, self.name, name)

    def unblock(self, name: str) -> list[str]:
        """Take mail from this name again. Gives all names that are still refused."""
        return guarding.unblock(self._office, self._caller, self.name, name)

    def blocked(self) -> list[str]:
        """The names whose mail is refused here."""
        return guarding.blocked(self._office, self._caller, self.name)

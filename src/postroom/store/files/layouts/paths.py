"""Where each design keeps its letters, as plain values. It weighs next to nothing: a quick look loads no more of a
layout than this.
"""

from __future__ import annotations

QUEUED = ".queued"  # mail for later, and for other systems, lies here: no design looks into it


class LayoutPaths:
    """One design's folders and names."""

    name = ""
    home = ""  # the folder of mailboxes, below the root
    places: tuple[str, ...] = ()  # where in a mailbox letters lie; new mail in the first
    beginning = ""
    ending = ""
    registry: str | None = None  # the file that shows all agents, in the home
    archives_by_sending = False  # as in `Store`

    def may_hold(self, name: str) -> bool:
        """Is this the name of a letter?"""
        return name.startswith(self.beginning) and name.endswith(self.ending) and not name.startswith(".")


class Nanobot(LayoutPaths):
    name = "nanobot"
    places = ("inbox", "processed", QUEUED)
    ending = ".msg.json"
    registry = "_registry.json"


class Chipset(LayoutPaths):
    name = "chipset"
    home = "mail"
    places = ("", "archive", QUEUED)
    ending = ".json"
    archives_by_sending = True


class Swarm(LayoutPaths):
    name = "swarm"
    places = ("inbox", "archive", QUEUED)
    beginning = "MSG-"
    ending = ".json"


SHAPES: dict[str, LayoutPaths] = {shape.name: shape for shape in (Nanobot(), Chipset(), Swarm())}
NAMES = tuple(SHAPES)

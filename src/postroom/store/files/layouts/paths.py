"""The folders and file names of each layout, as plain values.

This is all of a layout that the quick check loads, so this module imports nothing.
"""

from __future__ import annotations

QUEUED = ".queued"  # the folder for scheduled mail and mail to other systems; no design reads it


class LayoutPaths:
    """The folders and file names of one layout."""

    name = ""
    home = ""  # the folder of all mailbox folders, below the root
    places: tuple[str, ...] = ()  # the folders for letters in a mailbox folder; new mail in the first
    beginning = ""  # of the name of every letter file
    ending = ""
    registry: str | None = None  # the file that lists all agents, in the home
    archives_by_sending = False  # as in `Store`

    def may_hold(self, name: str) -> bool:
        """Return whether this can be the name of a letter file."""
        return name.startswith(self.beginning) and name.endswith(self.ending) and not name.startswith(".")


class NanobotPaths(LayoutPaths):
    name = "nanobot"
    places = ("inbox", "processed", QUEUED)
    ending = ".msg.json"
    registry = "_registry.json"


class ChipsetPaths(LayoutPaths):
    name = "chipset"
    home = "mail"
    places = ("", "archive", QUEUED)
    ending = ".json"
    archives_by_sending = True


class SwarmPaths(LayoutPaths):
    name = "swarm"
    places = ("inbox", "archive", QUEUED)
    beginning = "MSG-"
    ending = ".json"


LAYOUT_PATHS: dict[str, LayoutPaths] = {
    paths.name: paths for paths in (NanobotPaths(), ChipsetPaths(), SwarmPaths())
}
NAMES = tuple(LAYOUT_PATHS)

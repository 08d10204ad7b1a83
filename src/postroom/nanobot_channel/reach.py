"""Which conversations a gateway can speak into: those at the channels that it runs.

A terminal (`nanobot agent`) and a request to nanobot's own API are over when they got their answer. What comes
later for them is told to nobody; it is kept, and `mail_tasks` shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Mapping

NEVER = frozenset({"cli", "api", "system"})  # nanobot's names for what is no channel
WITHOUT_SECTION = frozenset({OWN_CHANNEL, "websocket"})  # the browser's is on by default


def is_reached(channel: str, sections: Mapping[str, Any]) -> bool:
    """Does a gateway with these sections under `channels` send to this channel?"""
    name = channel.partition(".")[0]  # one of several bots is `telegram.second`
    if name in NEVER:
        return False
    if name not in sections:
        return name in WITHOUT_SECTION
    section = sections[name]
    enabled = section.get("enabled") if isinstance(section, dict) else getattr(section, "enabled", None)
    return enabled is not False

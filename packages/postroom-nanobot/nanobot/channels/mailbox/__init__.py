"""Postroom's channel `mailbox`, where nanobot looks for channels, with the three names of the design.

Each is imported when it is first used: nanobot reads the manifests of all channels, enabled or not.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "MailboxManager": "postroom.nanobot",
    "MailboxChannel": "postroom.nanobot.channel.channel",
    "MailboxConfig": "postroom.nanobot.channel.channel",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

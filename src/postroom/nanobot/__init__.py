"""The nanobot mailbox design: its `MailboxManager`, over the same files, and mail as a channel of nanobot.

    manager   the eight methods of `MailboxManager`
    channel   the plugin for nanobot's gateway

Nothing of nanobot is imported here, and nanobot need not be installed. Below is the room in files
(`files:<root>?layout=nanobot`), which other programs may use at the same time, through us or directly.
"""

from __future__ import annotations

from .manager import DEFAULT_ROOT, MailboxManager

__all__ = ["DEFAULT_ROOT", "MailboxManager"]

"""The nanobot design at the edge: its manager of mailboxes, by its own names, over the same files.

    manager   the eight methods
    agents    register, beat, status: cards and signs of life, in the design's words
    letters   a message of the design becomes a letter

Nothing of nanobot is imported, and nothing of it must be installed. Below stands the room in files
(`files:<root>?layout=nanobot`), which any other program may use at the same time, through us or by itself.
"""

from __future__ import annotations

from .manager import DEFAULT_ROOT, MailboxManager

__all__ = ["DEFAULT_ROOT", "MailboxManager"]

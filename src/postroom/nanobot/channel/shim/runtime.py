"""The channel class. This file is installed inside nanobot, so it imports Postroom by its full name."""

from postroom.nanobot.channel.channel import MailboxChannel

__all__ = ["MailboxChannel"]

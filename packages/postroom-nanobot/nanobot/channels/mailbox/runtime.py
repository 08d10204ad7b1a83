"""The channel class, which must be reachable inside nanobot's own folder."""

from postroom.nanobot.channel.channel import MailboxChannel

__all__ = ["MailboxChannel"]

"""The channel itself, which is kept in Postroom."""

from postroom.nanobot_channel.channel import MailboxChannel

__all__ = ["MailboxChannel"]

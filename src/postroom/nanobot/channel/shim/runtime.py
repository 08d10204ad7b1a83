"""The channel itself, which is kept in Postroom."""

from ..channel import MailboxChannel

__all__ = ["MailboxChannel"]

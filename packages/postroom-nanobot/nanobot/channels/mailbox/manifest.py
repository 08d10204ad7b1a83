"""The manifest of the channel, which nanobot reads before it loads the channel."""

from nanobot.channels.plugin import ChannelPlugin

PLUGIN = ChannelPlugin(name="mailbox", display_name="Mailbox", runtime=f"{__package__}.runtime:MailboxChannel")

"""Mail as a channel of nanobot: a plugin by which nanobot's gateway takes part in a room. nanobot is unchanged.

config      the section `channels.mailbox` of nanobot's config
channel     the channel class that nanobot loads
tools       the tool classes that nanobot loads
reception   the main loop: claim letters, hand them over as turns, settle them
bus         the messages on nanobot's bus: what the reception puts there, what leaves the model, and its events
intent      what to do with a letter, and the session in which its answer was requested
turns       the letters that the model works on, until they are settled
settlement  acknowledging a letter and sending the answer of its turn
auto_reply  which letters get an automatic answer, and how many
post        the room and the mailbox of the agent, and the mail that its model sends
text        letters unpacked, and as text for the model
toolbox     the tools of the model, without nanobot
gateways    the one gateway of an agent, the conversations it reaches, and its claims
doctor      checks whether nanobot finds and loads the channel, and whether a gateway runs

Only channel and tools import nanobot. The distribution `postroom-nanobot` (packages/ in the clone) has what
nanobot must find in its own folder.
"""

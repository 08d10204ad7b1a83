"""Mail as a channel of nanobot: its gateway takes part in a post room, by plugin, with nothing in nanobot changed.

config      the section `channels.mailbox` of nanobot's config
post        one agent's post: who it is, what it sends, whom it asked for what
reception   the loop: claim, sort, hand over, hold on, beat
bus         nanobot as the reception knows it
sorting     what a letter that came is: work, an answer for somebody, or nothing to do
taking      mail, while some of it is not to be taken here
homes       which gateway of an agent has a session, and which of them are there
lodging     one gateway among those of its agent
turns       turns of the model that mail began, until they are settled
events      where nanobot says that a turn is over
telling     results that could not be told yet
manners     who is answered, and how often
asked       the sessions in which we were asked, kept on our side
wording     a letter as the model sees it
enclosures  files and data in letters, as text and media
holders     whose claims may be taken over after a crash
reach       which conversations a gateway can speak into
trouble     what goes wrong with one letter, kept away from the others
toolbox     the tools of the model, without nanobot
tasklist    how tasks stand, as the model sees it
finding     does nanobot find us, and why not

channel, tools, shim   the thin rim: the only files that import nanobot
"""

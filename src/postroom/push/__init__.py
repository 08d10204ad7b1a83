"""Rings that leave the room: a signed call to whoever asked for it, or a note on the desktop.

When somebody is rung, how often and what is tried again is decided in `service.ringing`; this room only carries
it out. It refuses to know how mail is kept, and says nothing of a letter but who wrote it, its subject and its id.
Above it stand the daemon and the command line; below it are the desk and the service. Nothing here is loaded where
nobody asked for it.

    notice     what a ring says, as JSON and as words
    calling    one call: looked up once, checked, signed, sent, its answer read and forgotten
    answers    what an answer means: rung, gone, later
    ringer     one webhook, for ever: wait, ring, tell what came of it
    pusher     all webhooks of a running post room, as they come and go
    desktop    a note on the screen, by the program that the system has for it
"""

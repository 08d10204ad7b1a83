"""The person's mailbox on a terminal: what waits, opened and answered by keys.

    keys        from the bytes of a keyboard to keys
    line        a text that is being written
    verbs       what can be done with each thing that waits, by which key
    desk        where the person is: what waits, what is chosen, what is written. Keys go in, wishes come out
    pictures    the same as lines on a screen
    reading     one thing whole: its letter, and what was said before it
    deeds       a wish, done at the mailbox: one commit each
    drafts      what was written and not sent, in files
    sitting     the loop that joins them: screen, ear, keyboard, mailbox

The first five are pure: they know no terminal, no room and no clock. Nobody here knows how mail is kept, or
decides what may be done with it: that is the mailbox's, as for every other command.
"""

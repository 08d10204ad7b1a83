"""The person's mailbox on a terminal: what waits, opened and answered by keys.

    state     what waits, what is chosen, what is being written: keys go in, effects come out
    screen    from the bytes of a keyboard to keys, and from the state to lines on a screen
    session   the loop that joins screen, keyboard and mailbox; drafts in files; effects carried out

`state` and `screen` are pure: they know no terminal, no room and no clock. What may be done with a letter is
decided by the mailbox, as for every other command.
"""

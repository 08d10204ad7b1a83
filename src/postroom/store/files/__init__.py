"""A room in folders of files, as three public designs have it. The files are the truth; `.postroom/` is an index.

    recognising  whose letters lie in a folder
    layouts      how a design writes a letter down, and where it lies in which state
    letters      a letter ⇄ a file, without loss, in any layout
    paper        files that survive: made whole, moved, made to last
    handles      what is set aside for the day when there is no more
    steps        what a commit does to files; each step can be done again and taken back
    journal      records, and commits of more than one step
    paperwork    one commit, beside the index
    tree         the folders as they lie on the disk
    places       which of them hold mail, and whose
    ledger       the index's own tables: which file holds which delivery
    eyes         noticing what strangers do
    accepting    whether a file still says what was accepted
    noticing     whether it is really new
    reconciling  taking it in
    entering     what their letters say of tasks
    compacting   the journal, when it is long
    aside        what is no letter
    recovering   after a boot or a crash
    rebuilding   when the index is thrown away
    entries      an agent's entry in the registry of a design ⇄ its card
    registry     the file that shows all agents, published and listened to
    roll         what stands in it, as far as we know
    adopting     agents that strangers wrote into it
    examining    the doctor's look at files and journal
    surroundings the doctor's look at folders, and at what lies beside the letters
    listening    waking those who wait
    showing      the files behind letters, as they are
    connection   one thread's way in
    store        the protocol, put together
    glance       from outside: is there surely nothing unread?

The commit path: stand in line → BEGIN IMMEDIATE, the index changes → the file is written, synced and renamed →
COMMIT (not synced) → leave the line → sync the folder → ring the bells → report success.

Below stands `store.sqlite`, whose room is the index; above, nobody knows that there are files.
"""

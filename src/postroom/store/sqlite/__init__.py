"""A room in one SQLite file, used by many processes at once, with no server.

    ground      may this file be used at all: owner, modes, kind of file system
    identity    which file stands at a path
    folder      whether any file beside the room came, went or was replaced
    lock        the queue in which writers stand: flock, fair and bounded
    note        how far the room reached when a letter was last confirmed
    futex       words on which processes sleep until another wakes them
    turns       a tap on the shoulder for whoever is next in that line
    tray        letters of those who wait, for whoever is in to take along
    parcels     what lies in the tray
    laid        how one waits whose parcel lies there
    wal         the write-ahead log: pre-sized, synced by each writer, checkpointed under the lock
    headstart   the disk begins to write it before it is waited for
    reserve     space set aside, so that mail can be done with on a full disk
    connection  one thread's way in: connection, lock and log together
    schema      versions and migrations
    rows        rows ⇄ model
    writing     what each write does, inside a transaction
    together    many letters that are read at once
    repeats     a letter that was accepted before
    committing  one commit, from the line to the answer
    joining     several commits in one transaction
    gathering   several commits, made safe by one sync
    asking      what each question reads
    index       the index of words, in a file of its own
    index_words what stands in it, and how it is asked
    lookout     when a sender looks whether that index lags behind
    searching   a search: new letters one by one, older ones by way of the index
    counting    what is counted, from the small indexes
    backup      a copy of a room in use
    restoring   a copy becomes the room again
    holders     who has the room open
    patience    long statements let Ctrl-C in
    place       the health of the files, from outside
    examining   the health of the room, from inside
    quarantine  where damaged letters are kept
    access      a connection for each thread; answers that are sound, or set aside
    store       the protocol, put together

The commit path: stand in line → BEGIN IMMEDIATE … COMMIT (WAL, synchronous=NORMAL) → leave the line →
fdatasync the log → note how far it reaches → ring the bells → report success. Who must wait lays its letter into
the tray, and is told when another has written it and made it safe.

A part that is not on that path is loaded when it is first asked for, as `sqlite.asking`.
"""

"""A room in one SQLite file, used by many processes at once, with no server.

    ground      may this file be used at all: owner, modes, kind of file system
    lock        the queue in which writers stand: flock, fair and bounded
    turns       a tap on the shoulder for whoever is next in that line
    wal         the write-ahead log: pre-sized, synced by each writer, checkpointed under the lock
    reserve     space set aside, so that mail can be done with on a full disk
    connection  one thread's way in: connection, lock and log together
    schema      versions and migrations
    rows        rows ⇄ model
    writing     what each write does, inside a transaction
    asking      what each question reads
    index       the index of words, in a file of its own
    index_words what stands in it, and how it is asked
    searching   a search: new letters one by one, older ones by way of the index
    counting    what is counted, from the small indexes
    backup      a copy of a room in use
    restoring   a copy becomes the room again
    holders     who has the room open
    patience    long statements let Ctrl-C in
    place       the health of the files, from outside
    examining   the health of the room, from inside
    store       the protocol, put together

The commit path: stand in line → BEGIN IMMEDIATE … COMMIT (WAL, synchronous=NORMAL) → leave the line →
fdatasync the log → ring the bells → report success. Many writers sync at once; none waits for another's disk.
"""

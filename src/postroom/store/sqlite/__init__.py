"""A room in one SQLite file, used by many processes at once, without a server.

    store       SqliteStore: the store protocol, with a connection for each thread
    commit      one commit from the lock queue to the answer; batches that share one sync
    writes      what each write does to the tables, inside a transaction
    queries     queries as SQLite answers them best
    rows        rows of the tables ⇄ values of the model
    schema      versions and migrations
    connection  one thread's connection, lock and log; what it remembers between two commits
    lock        the queue of writers: an flock, fair and bounded
    note        how far the room reached when a letter was last confirmed
    wal         the write-ahead log: pre-sized, synced by each writer, checkpointed under the lock; the reserve
    search      the text index, in a file of its own, and searches
    memory      the same room in the memory of one process
    ground      may this file be used at all: owner, modes, kind of file system
    place       the health of the files, from outside
    examine     the health of the room, from inside
    backup      a copy of a room in use, and how a copy becomes the room again
    salvage     what can be read of a damaged room

The commit path: wait for the lock → BEGIN IMMEDIATE … COMMIT (WAL, synchronous=NORMAL) → leave the lock →
fdatasync the log → note in the lock file how far it reaches → notify → report success. In a batch, sync and
notifications come once, at its end.
"""

"""Rooms in folders of files, in the layouts of three public designs: files are the truth, `.postroom/` an index.

    store         the store protocol: `FileStore`, a `SqliteStore` whose room is the index
    connection    one thread's connection to index, journal, ledger and registry
    transaction   the files of one commit: steps that can be repeated and undone
    durable       durable file operations
    journal       records, and commits of more than one step
    ledger        the tables that connect the index with the files
    tree          the mail folders on disk
    letter_files  conversion between a letter and its file
    layouts       the formats: how a letter is written, and where it lies in which state
    watch         noticing what other programs do, and waking callers that wait
    reconcile     taking in what other programs did
    quarantine    files that are no letters
    recovery      after a boot or a crash, or when the index was deleted
    registry      the nanobot registry file, which shows all agents
    entries       conversion between a registry entry and a card
    examine       the doctor's checks

The order of a commit: take the writer lock, BEGIN IMMEDIATE, change the index; write, sync and rename the file;
COMMIT (not synced), release the lock; sync the folder, notify, report success. A crash in between leaves a warning
in the lock file, and the next process recovers.

Below is `store.sqlite`, whose room is the index. Nothing above knows that there are files.
"""

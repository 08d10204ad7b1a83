"""A room in one schema of a PostgreSQL database, used by many machines at once.

    address       the address, without a password
    store         PostgresStore: the store protocol; commits, plans and batches
    schema/       the tables, and the functions that make the writes; ROOM stands for the name of the schema
    schema.py     versions and migrations; what a server must be set to
    connection    a bounded pool of connections for each process
    errors        errors of the server in the house's words
    writes        writes as the functions take them; letters that must be looked at under the lock
    queries       queries as PostgreSQL writes them
    search        the text index, and searches
    notification  LISTEN and NOTIFY, or polling
    clock         the server's time, by which leases go
    examine       the health of the room and of its server
    backup        a copy into a room in a file

The commit path: take the room's lock → write → COMMIT without waiting for the disk, which leaves the lock → flush
what must last → NOTIFY → report success. For a list of writes that is one call of a procedure.
"""

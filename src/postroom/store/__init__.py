"""Where mail is kept: one protocol, several stores, one contract suite for all of them.

A store knows the model and nothing above it.

    protocol       the store protocol: writes, queries, notification
    address        from a store's address to the store
    notification   waking waiters, in this process and in others
    matching       what a query and a search mean, in plain Python
    memory         the store in memory
    sqlite         the store in one SQLite file
    files          the store in mail folders, with SQLite as its index
"""

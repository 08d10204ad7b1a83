"""Stores: one protocol, several implementations, and one contract suite (`tests/contract`) for all of them.

A store knows the model and nothing above it.

    protocol       the store protocol: writes, queries, notification
    queries        the SQL of each query, for SQLite and PostgreSQL
    address        opens a store by its address
    peek           a quick check for unread mail, without model and store
    notification   wakes waiting threads, in this process and in others
    sqlite         the store in one SQLite file, or in memory
    files          the store in mail folders, with SQLite as its index
    postgres       the store on a PostgreSQL server
"""

"""The Unix socket: lines of JSON in, lines of JSON out, in the dialect of agent-inbox and in JSON-RPC.

It refuses to know what any method does. Above it stands the daemon, below it `desk` and `wire`.

    place       where the socket is, who holds it, a stale one cleared safely
    server      accepts, and ends
    connection  one caller: who it is, what it says, replies in order, a bounded memory
    lingering   staying awake for a caller who comes back at once
    unread      callers that do not read: bounded for all of them together
    client      a program's side of it
"""

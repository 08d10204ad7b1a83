"""The use cases: the only room where policy meets store, and where every caller is asked who they are.

Each verb takes the office (store, rules, clock, ids) and the caller, asks `authorize`, then policy, then commits.
Nothing here knows sockets, files, terminals or frameworks; what lies above (the Python API, later the command
line and the wire) only parses, calls and prints.

    office     what every verb needs
    authorize  who may do what: the table
    given      numbers and lists as callers say them
    compose    from what a caller says to a checked letter
    files      files enclosed in letters
    sending    send, reply, forward, broadcast, handoff
    reading    check, read, counts, wait
    waiting    look, sleep until a bell rings, look again
    moving     find, step, commit; what time did to deliveries
    holding    claim, renew, ack, fail, release
    dead       dead letters
    bouncing   notices to the sender of a letter that died
    threads    threads, conversations, turns
    directory  cards, heartbeats, presence
    janitor    what time does when nobody looks: leases, expiry, archive, retention
    portable   a whole room as JSON lines
    copying    backups
    counting   a room in numbers, and how its mail flows
    tracing    the life of one letter
    doctor     the health of a room, and repairs that are safe
    present    letters as text for prompts
"""

"""The post room as a service: puts the parts together, starts them, stops them. Holds no rule of its own.

Above it stands the command line; below it are the rims, the desk and the room.

    options    what was asked for: sockets, address, room; from flags, POSTROOM_* and INBOX_*
    app        everything in one event loop, from the first line of the log to the last
    extras     HTTP and MCP, where what they need is installed
    holding    one daemon for a room, and who it is
    logs       structured lines on stderr
    unit       the same started by systemd: a file, and the lines to type
    chores     what is done now and then: the janitor
    inbox_files    a folder of inbox.jsonl files that loses no line
    inbox_carrier  carries news of each letter into them
    plain_files    regular files with one name, and nothing else of that name
"""

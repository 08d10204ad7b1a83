"""The command line: every verb as `postroom VERB`, for people, scripts and agents.

    main      the entry point
    quick     answers an empty check and the hooks without loading the rest
    table     the names of the commands, the module of each, and former names
    command   what a command takes: declared beside its function, with the parameters of its verb
    options   options that several commands share
    parse     from words to a command and its values, with argparse
    help      the pages of help; completion  what shells offer
    run       runs the command
    context   what a command works with: caller, room, texts
    answer    the answer of a command, and the screen on which it is shown
    output    tables and harmless text for people
    errors    errors and exit codes
    views     what people read of letters, agents and receipts
    screen    a screen of its own on a terminal, for `top` and the inbox
    inbox     the person's inbox on a terminal

Each other module holds the commands of one group, and is loaded only when one of them is called: `send`, `read`,
`work`, `tasks`, `escalation`, `agents`, `alerts`, `peers`, `webhooks`, `room` (make and sweep a room), `health`
(doctor, stats, top, trace), `copies` (copy, export, backup), `serve`, `unit` (systemd), `install`, `hooks`,
`help`, `chipset`, and `edges` (nanobot and swarm).
"""

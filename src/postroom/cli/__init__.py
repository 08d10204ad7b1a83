"""The command line: every verb as `postroom VERB`, for people, scripts and agents.

    main      the entry point
    quick     answers an empty check and the hooks without loading the rest
    table     the names of the commands, the module of each, and other words for them
    command   what a command takes: a row beside its function, with the parameters of its verb
    parse     from words to a command and its values
    help      the pages of help; completion  what shells offer
    run       runs the command
    context   what a command works with: caller, room; performs its verb
    daemon    a verb carried out by the post room that serves a room on a server here
    text      the body of a letter: an option, standard input, an editor, files
    answer    the answer of a command, and the screen on which it is shown
    output    tables, sentences and harmless text for people
    errors    errors and exit codes
    views     what people read of letters, agents and receipts
    screen    a screen of its own on a terminal, for `top` and the inbox
    inbox     the person's inbox on a terminal

Each other module holds the commands of one group, and is loaded only when one of them is called: `send`, `read`,
`work`, `tasks`, `escalation`, `agents`, `alerts` (watch, rings, webhooks), `peers`, `room` (make, sweep, copy and back
up a room), `health` (doctor, stats, top, board, trace), `serve` (the server, tokens, mcp), `install`, `hooks`,
`own_files` (the unit, the shim, what nanobot and agent-swarm need), `chipset`, and `help`.
"""

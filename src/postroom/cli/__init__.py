"""The command line: every verb as `postroom VERB`, for people, scripts and agents.

    main      the entry point
    quick     answers an empty check and the hooks without loading the rest
    table     the commands and their options: parsing, help, completion and docs/commands.md come from it
    parse     from words to a command and its values
    run       runs the command
    context   what a command works with: caller, room, texts
    output    answers as JSON, Markdown or tables
    errors    errors and exit codes

Each other module holds the commands of one group, and is loaded only when one of them is called.
"""

"""The command line: every verb of the library as `postroom VERB`, for people, scripts and agents.

    table       what commands there are: the one source of parsing, help, completion and docs/commands.md
    parse       from words to a command and its values
    glance      the quick answers: nothing unread, without loading the library
    context     what a command works with: who calls, in which room
    ids         beginnings of ids, for the whole
    notes       a word beside the answer, on standard error
    answers     what a command gives back; rendered once, as JSON, as Markdown or as a table
    exits       which error ends with which code

Each other module holds the commands of one group. A command is loaded only when it is called.
"""

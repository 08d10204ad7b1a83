"""Putting a host's hooks, its MCP server and its rules text in place, and taking them out again.

    jsonc       a JSON file as it is written: where each value stands
    json_edit   values put into such a file, and taken out
    toml_table  a table of ours in a TOML file
    blocks      a block of ours in a text for models
    programs    what a host would start
    edits       what is put in and what is cut out, and how that is undone
    pieces      what is ours in one file, whatever the file is
    ground      files as they are found; which of them are left alone
    receipts    what was put where, so that it can be undone to the byte
    planning    what would be done to which file
    standing    what is in place
    beside      the same in other places, which a host would run as well
    writing     a plan carried out: all of it or nothing
    layouts     where each host looks for what

Files belong to others. Whatever is not ours stays as it is, with its comments, its order and its blanks; what
cannot be understood is left alone, with an error. It refuses to know who asks and how: the command line does.
"""

"""The dashboard in a browser: its files, and under which addresses and headers they are served.

    files     the files below `static`, read once, each with its type and compressed; the headers of the page
    static    what a browser loads: one page, its modules and styles, and unmodified files of others in `vendor`

There are no sockets here: `server/dashboard.py` serves what this room holds.
"""

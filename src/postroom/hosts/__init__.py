"""The hosts in which agents live: Claude Code, Codex and Gemini CLI. How a session of theirs is told of its mail.

    heard       what a host says to a hook
    moments     the five moments of a session, whatever a host calls them
    claude, codex, gemini   which event of a host is which moment, and how it is answered
    telling     what a session is told at each moment
    wording     mail in few words: pointers, and bodies inside a fence, within a host's budget
    sessions    the sessions that run: whose they are, where their mail is, whether a turn is under way
    unkept      a session that cannot be noted down
    naming      what a session's agent is called
    processes   who started us, and whether they still live
    whose       the session in which a command was typed
    waiter      the one process of a session that waits, and rings; queueing: how it rings at Codex
    recipes     the hooks as each host's configuration wants them; plugins: that of Claude Code
    install     all of it put into a host's files, and taken out again

It refuses to know how mail is kept, and decides nothing about ringing: `policy` has the rules. The command line
lies above it and brings the mail; the service lies below.
"""

"""The hosts in which agents run (Claude Code, Codex, Gemini CLI), and alerts that leave the room.

hooks                   one call of a host: show mail at an event of a session, or wait to wake it
sources                 where hooks find mail: a room, a daemon's socket, an inbox.jsonl file
quick                   the first look of a hook: whether there is certainly nothing to show
dialects                the moments of a session, how each host names them, what it passes, how it is answered
text                    mail as a hook prints it, fenced, within a host's budget
sessions                running sessions: whose they are, and where their mail is
waiter                  the process of a session that waits for mail and wakes it
recipes                 hooks as each host's configuration wants them
install                 installing hooks in a host's files, and removing them
inbox_files             `<agent>.inbox.jsonl`: a line for each new letter
webhooks                signed HTTP calls when mail waits
desktop                 notes on the desktop
"""

"""The hosts in which agents live (Claude Code, Codex, Gemini CLI), and alerts that leave the room.

input                   what a host passes to a hook
events                  the five moments of a session
claude, codex, gemini   the events and answers of each host
text                    mail as a hook prints it, fenced, within a host's budget
sessions                running sessions: whose they are, and where their mail is
waiter                  the process of a session that waits for mail and wakes it
recipes                 hooks as each host's configuration wants them
install                 putting hooks into a host's files, and taking them out
webhooks                signed calls to whoever asked for them
desktop                 notes on the desktop
"""

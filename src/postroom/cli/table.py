"""The table of commands: their names by group, the module of each, and other words for them.

`postroom help` and the completion of a command's name load this module alone. What a command takes stands beside
its function, in the module that the table names.
"""

from __future__ import annotations

# A host of agents -> its name, and whether its hook wakes an idle session.
HOSTS = {
    "claude": ("Claude Code", ", and wake an idle session"),
    "codex": ("Codex", ", and wake an idle session"),
    "gemini": ("Gemini CLI", ". Nothing wakes an idle session"),
}

# Title of a group -> name of a command -> (its module in `cli`, what it does).
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Sending": {
        "send": ("send", "send a letter to one agent or many"),
        "reply": ("send", "answer a letter"),
        "ask": ("send", "send a request, and wait for its answer"),
        "forward": ("send", "pass a letter on"),
        "broadcast": ("send", "send one letter to everyone in a scope"),
        "handoff": ("send", "hand work over, with all its context"),
    },
    "Reading": {
        "check": ("read", "show the unread mail"),
        "read": ("read", "show one letter whole"),
        "wait": ("read", "wait for the next letter"),
        "counts": ("read", "count the unread mail by priority"),
        "digest": ("read", "the unread mail as text for a prompt"),
        "sent": ("read", "list the letters you sent, the newest first"),
    },
    "Working": {
        "claim": ("work", "take the most urgent letter under a lease"),
        "ack": ("work", "settle a letter: it is done and leaves the inbox"),
        "fail": ("work", "report a failed try: the letter is offered again later"),
        "reject": ("work", "refuse a letter: to the dead letters, with a notice to its sender"),
        "release": ("work", "give a letter back, as if it had never been claimed"),
        "renew": ("work", "extend a lease, counted from now"),
        "work": ("work", "run a program for each letter"),
    },
    "Threads": {
        "thread": ("read", "show the letters of a thread"),
        "threads": ("read", "list threads with replies, the most recently active first"),
        "tagged": ("read", "show the letters with a thread tag"),
        "conversations": ("read", "list conversations, the most recently active first"),
        "conversation": ("read", "show one conversation's participants and counts"),
        "turns": ("read", "replay a conversation"),
    },
    "Finding": {
        "search": ("read", "find letters by their text"),
    },
    "Tasks": {
        "tasks": ("tasks", "list the tasks you gave and were given"),
        "tasks show": ("tasks", "show one task and its letters"),
        "tasks give": ("tasks", "give one agent a task"),
        "tasks accept": ("tasks", "take a task on"),
        "tasks admit": ("tasks", "accept or reject a task by rules"),
        "tasks reject": ("tasks", "refuse a task"),
        "tasks start": ("tasks", "report that you work on a task now"),
        "tasks ask": ("tasks", "ask the giver of a task a question"),
        "tasks answer": ("tasks", "answer the receiver's question"),
        "tasks complete": ("tasks", "complete a task; the text is its result"),
        "tasks fail": ("tasks", "report that a task cannot be done"),
        "tasks cancel": ("tasks", "take back a task you gave"),
    },
    "Asking": {
        "escalate": ("escalation", "ask the next agent or person above you on the ladder"),
        "escalations": ("escalation", "list questions that were escalated by you or to you, the oldest first"),
        "resolve": ("escalation", "close an escalation without an answer"),
        "waiting": ("escalation", "list what waits for you, urgent things first, with the command to type"),
        "dashboard": (
            "dashboard",
            "open the room in a browser: what waits, who writes to whom, tasks, dead letters",
        ),
        "inbox": ("escalation", "show what waits for you, live: read, answer, approve and decline by keys"),
    },
    "Templates": {
        "templates": ("send", "list the letters that were written beforehand"),
        "templates show": ("send", "show one template"),
        "templates save": ("send", "keep a recurring letter"),
        "templates delete": ("send", "delete a template"),
    },
    "Taking back and blocking": {
        "unsend": ("send", "take back letters that you sent"),
        "block": ("send", "refuse mail from an agent; without a name, list the agents that are refused"),
        "unblock": ("send", "accept mail from an agent again"),
    },
    "Alerts": {
        "watch": ("alerts", "alert you to new mail: print a line, run a program or show a desktop note"),
        "rings": ("alerts", "list rings that were given up, for letters that are still unread"),
        "rings retry": ("alerts", "try rings again that were given up"),
    },
    "Dead letters": {
        "dead": ("work", "list dead letters, the oldest first"),
        "dead show": ("work", "show a dead letter, why it died, and every try"),
        "dead revive": ("work", "bring dead letters back into the inbox"),
        "dead purge": ("work", "delete dead letters for good"),
    },
    "Agents": {
        "agents": ("agents", "list agents, their capabilities and their status"),
        "agents show": ("agents", "show one agent's card"),
        "register": ("agents", "register yourself, or replace your card"),
        "heartbeat": ("agents", "report that you are alive"),
        "leave": ("agents", "leave the room; mail for you waits"),
    },
    "Health": {
        "doctor": ("health", "check a room's health, and repair what is safe to repair"),
        "board": ("health", "show who waits for whom, and what is stuck"),
        "stats": ("health", "show the numbers of the room, or of your own mailbox"),
        "top": ("health", "watch the flow, the backlog and slow agents"),
        "trace": ("health", "show the life of one letter: where it is, and what happened to it"),
    },
    "The room": {
        "init": ("room", "make a room for the project in this folder"),
        "rooms": ("room", "show which room is in use, and what is in it"),
        "rooms changes": ("room", "list what happened after a cursor"),
        "rooms janitor": ("room", "run maintenance once: leases, expiry, archive, retention"),
        "rooms archive": ("room", "archive mail that was acknowledged"),
        "rooms purge": ("room", "delete old mail that is done or dead everywhere"),
    },
    "Copies": {
        "rooms copy": ("room", "copy mail from one room into another"),
        "rooms export": ("room", "write the whole room as JSON lines"),
        "rooms import": ("room", "fill an empty room from an export"),
        "rooms backup": ("room", "copy the room, while others use it"),
        "rooms restore": ("room", "restore a room from a backup"),
    },
    "For agents": {
        "mcp": ("serve", "serve mail to an agent as an MCP server, over standard input and output"),
    },
    "Other designs": {
        "swarm install": ("own_files", "let programs written for agent-swarm's mailbox use Postroom"),
    },
    "nanobot": {
        "nanobot doctor": ("own_files", "check whether nanobot finds the channel mailbox, and why not"),
    },
    "Chipset": {
        "chipset check": (
            "chipset",
            "show the work on your hook, the nudge in your slot, and your last handoff note",
        ),
        "chipset hooks": ("chipset", "list the hooks of all agents"),
        "chipset dispatch": ("chipset", "put a work item on an agent's empty hook, and send the assignment"),
        "chipset remind": ("chipset", "send the assignment of a pending item again, if it is missing"),
        "chipset activate": ("chipset", "take up the work on your hook"),
        "chipset touch": ("chipset", "report that you still work on the item on your hook"),
        "chipset report": ("chipset", "complete the work on your hook, and send the completion report"),
        "chipset accept": ("chipset", "accept completed work: its hook is empty again"),
        "chipset reassign": ("chipset", "give the item of a stalled agent to another, or to the same once more"),
        "chipset clear": ("chipset", "take whatever is on an agent's hook off it"),
        "chipset nudge": ("chipset", "nudge an agent: one slot, the latest wins"),
        "chipset answer": ("chipset", "answer the nudge in your slot"),
        "chipset handle": ("chipset", "mark the nudge in your slot as handled, without an answer"),
        "chipset note": ("chipset", "leave a handoff note for your next session"),
        "chipset notes": ("chipset", "list handoff notes, the oldest first"),
        "witness": (
            "chipset",
            "watch the hooks of a chipset: nudge stalled agents, and report silent ones to the mayor",
        ),
    },
    "Service": {
        "serve": (
            "serve",
            "open the post room for programs that are not Python: a socket, HTTP, WebSocket, MCP, MAP",
        ),
        "tokens create": ("serve", "make a token; it is shown once"),
        "tokens": ("serve", "list all tokens, without their secrets"),
        "tokens revoke": ("serve", "revoke a token at once"),
        "tokens unseal": ("serve", "let callers of the socket act for an agent without a token again"),
    },
    "People": {
        "people": ("people", "list the people of the room and their keys"),
        "people add": ("people", "bring your key to this room, or add another person's"),
        "people remove": ("people", "remove a person's key"),
        "people rotate": ("people", "make yourself another key"),
    },
    "Other systems": {
        "peers invite": ("peers", "invite another system: print the one string by which it joins"),
        "peers join": ("peers", "join the system that made an invitation"),
        "peers add": ("peers", "add another system as a peer, or change what it may do"),
        "peers": ("peers", "list all other systems that are known here, without their secrets"),
        "peers show": ("peers", "show another system, and what it may do"),
        "peers ping": ("peers", "check whether another system answers, how fast, and what to do if it does not"),
        "peers trust": ("peers", "pin another system's certificate, or give it a new token"),
        "peers remove": ("peers", "remove another system: no mail goes there or comes from there"),
    },
    "Webhooks": {
        "webhooks add": ("alerts", "call an address when mail waits; its secret is shown once"),
        "webhooks": ("alerts", "list all webhooks, without their secrets"),
        "webhooks test": ("alerts", "call a webhook now, without mail, and show the outcome"),
        "webhooks rotate": ("alerts", "give a webhook another secret, shown once"),
        "webhooks remove": ("alerts", "remove a webhook"),
    },
    "Agent hosts": {
        f"hook {host}": ("hooks", f"the hook of {name}, for all of its events: show new mail{wakes}")
        for host, (name, wakes) in HOSTS.items()
    },
    "Hooks": {
        "hook session-start": ("hooks", "for a host, when a session starts: register, and show waiting mail"),
        "hook prompt": ("hooks", "for a host, with each prompt: show new mail, and mark what was shown as read"),
    },
    "In your hosts": {
        **{
            f"install {host}": (
                "install",
                f"let the sessions of {name} get their mail: hooks, MCP server and a rules text",
            )
            for host, (name, _) in HOSTS.items()
        },
        **{
            f"uninstall {host}": ("install", f"take out of {name} what install put into it")
            for host, (name, _) in HOSTS.items()
        },
    },
    "Other hosts": {
        "install agent-inbox-shim": (
            "own_files",
            "put a command named agent-inbox on your PATH, for hosts that start one",
        ),
        "uninstall agent-inbox-shim": ("own_files", "take that command away again"),
    },
    "Systemd": {
        "service install": ("own_files", "let systemd start the post room when you log in"),
        "service uninstall": ("own_files", "take the unit away again"),
        "service status": ("own_files", "show whether there is a unit, and its state in systemd"),
    },
    "Folders as systems": {
        "mount": ("peers", "make the agents of another mail folder reachable, as a system"),
        "unmount": ("peers", "unmount a mail folder: it is not a system any more"),
    },
    "This program": {
        "help": ("help", "explain a command"),
        "completion": ("completion", "a script that teaches your shell to complete postroom"),
        "version": ("help", "print the version"),
    },
}
HIDDEN = {"__complete": ("completion", "what could come next")}  # for shells, not for people
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()} | HIDDEN

# The commands of the first help.
EVERYDAY = (
    "send", "check", "read", "reply", "ask", "wait", "claim", "ack", "work", "search", "inbox", "dashboard", "escalate",
    "agents", "register", "tasks", "tasks give", "peers", "tokens", "tokens create", "webhooks", "templates", "dead",
    "board", "rooms", "init", "doctor", "serve", "mcp", "install claude",
)  # fmt: skip

# Names of earlier versions, which still work. An answer in JSON has the name that was typed.
FORMER = {
    "token create": "tokens create",
    "token list": "tokens",
    "token revoke": "tokens revoke",
    "token unseal": "tokens unseal",
    "peers list": "peers",
    "room": "rooms",
    "changes": "rooms changes",
    "janitor": "rooms janitor",
    "archive": "rooms archive",
    "purge": "rooms purge",
    "copy": "rooms copy",
    "export": "rooms export",
    "import": "rooms import",
    "backup": "rooms backup",
    "restore": "rooms restore",
    "webhook list": "webhooks",
    "webhook add": "webhooks add",
    "webhook test": "webhooks test",
    "webhook rotate": "webhooks rotate",
    "webhook remove": "webhooks remove",
}
RETIRED = {  # what earlier versions could do, and what to do instead
    "rename": "retired: agents keep their names; postroom register --name changes what others are shown",
    "--move": "retired: mounts keep rooms in step; see postroom help mount",
    "--watch": "retired: mounts keep rooms in step; see postroom help mount",
}

ALSO = {  # what belongs to a noun, too
    "agents register": "register",
    "agents add": "register",
    "agents heartbeat": "heartbeat",
    "agents leave": "leave",
    "agents remove": "leave",
    "conversations list": "conversations",
    "conversations show": "conversation",
    "escalations list": "escalations",
    "escalations resolve": "resolve",
    "escalations add": "escalate",
    "rooms list": "rooms",
    "rooms show": "rooms",
    "rooms init": "init",
    "rooms add": "init",
    "threads list": "threads",
    "threads show": "thread",
    "tokens remove": "tokens revoke",
}
# Other words for the second word of a command. A noun alone lists.
SAME = (
    ("list", "ls", "all"),
    ("show", "get", "view", "info"),
    ("remove", "rm", "delete", "del"),
    ("complete", "done", "finish"),
    ("add", "create", "new", "save", "give"),
    ("revive", "retry", "requeue"),
)
# What is meant by words that are no commands.
MEANT = {
    "list": "postroom check lists your mail; postroom agents, tasks, peers list those",
    "ls": "postroom check lists your mail; postroom agents, tasks, peers list those",
    "delete": "postroom ack settles a letter; postroom dead purge deletes dead ones",
    "rm": "postroom ack settles a letter; postroom dead purge deletes dead ones",
    "whoami": "you are who --as or POSTROOM_AGENT names: postroom agents show NAME",
    "outbox": "postroom sent lists the letters you sent",
    "compose": "postroom send NAME TEXT",
    "write": "postroom send NAME TEXT",
    "sendmail": "postroom send NAME TEXT",
    "msg": "postroom send NAME TEXT",
    "dm": "postroom send NAME TEXT",
    "schedule": "postroom send NAME TEXT --at WHEN",
    "mark-read": "postroom read ID shows a letter and marks it as read; postroom ack ID settles it",
    "peers connect": "postroom peers join joins by an invitation; postroom peers add SYSTEM --url URL calls one",
    "install *": "postroom install claude, codex or gemini; for another host: postroom mcp --config",
    "mcp install": "postroom install claude, codex or gemini; for another host: postroom mcp --config",
    "inbox --all": "in the inbox s shows what you sent; postroom check --all lists what was read, too",
    "answer": "postroom reply ID TEXT answers a letter; postroom tasks answer ID TEXT, a question about a task",
    "open": "postroom read ID shows a letter; postroom inbox shows what waits",
    "login": "no login is needed: --as NAME or POSTROOM_AGENT names you",
    "logout": "postroom leave says goodbye for an agent; postroom tokens revoke ends a token",
    "deadletters": "postroom dead lists the dead letters",
    "rooms remove": "no command deletes a room: postroom rooms shows its file; rooms purge deletes old mail",
    "rooms delete": "no command deletes a room: postroom rooms shows its file; rooms purge deletes old mail",
    "status": "postroom counts, postroom doctor, or postroom rooms",
    "start": "postroom serve",
    "stop": "Ctrl-C closes postroom serve; postroom leave says goodbye for an agent",
    "run": "postroom work runs a program for each letter; postroom serve opens the room",
    "config": "postroom rooms --settings shows the settings; --set NAME=VALUE changes one",
    "new": "postroom send NAME TEXT",
    "message": "postroom send NAME TEXT",
    "messages": "postroom check shows the unread mail; postroom sent, the letters you sent",
    "letters": "postroom check shows the unread mail; postroom sent, the letters you sent",
    "notify": "postroom watch alerts you to new mail; postroom webhooks add calls an address",
    "who": "postroom agents lists who is there; you are who --as or POSTROOM_AGENT names",
    "settle": "postroom ack ID; postroom fail, reject or release ID",
    "dead remove": "postroom dead purge ID deletes a dead letter for good",
    "dead rm": "postroom dead purge ID deletes a dead letter for good",
    "dead delete": "postroom dead purge ID deletes a dead letter for good",
    "get": "postroom check shows the unread mail; postroom claim takes a letter for work",
    "mail": "commands for mail stand alone: postroom send NAME TEXT, postroom check, postroom read ID",
    "unread": "postroom check shows the unread mail; postroom claim takes a letter for work",
    "receive": "postroom check shows the unread mail; postroom claim takes a letter for work",
    "recv": "postroom check shows the unread mail; postroom claim takes a letter for work",
    "show": "postroom read ID shows a letter; postroom tasks, agents, dead show NAME show those",
    "cat": "postroom read ID shows a letter; postroom tasks, agents, dead show NAME show those",
    "done": "postroom ack ID settles a letter; postroom tasks complete ID finishes a task",
    "complete": "postroom ack ID settles a letter; postroom tasks complete ID finishes a task",
    "log": "postroom trace ID shows the life of a letter; postroom rooms changes what happened in the room",
    "history": "postroom trace ID shows the life of a letter; postroom rooms changes what happened in the room",
    "users": "postroom agents",
    "subscribe": "postroom watch",
    "queue": "postroom waiting lists what waits for you; postroom board, who waits for whom",
    "ps": "postroom board shows who waits for whom; postroom agents, who is there",
    "nack": "postroom fail ID tries it again later; postroom reject ID makes it a dead letter",
    "unregister": "postroom leave says goodbye for an agent",
    "retry": "postroom dead revive ID offers a dead letter again; postroom release ID gives back a claimed one",
    "requeue": "postroom dead revive ID offers a dead letter again; postroom release ID gives back a claimed one",
    "tail": "postroom watch alerts you to new mail",
    "follow": "postroom watch alerts you to new mail",
    "listen": "postroom wait waits for a letter; postroom serve opens the room to other programs",
    "setup": "postroom init makes a room here; postroom install puts the hooks into a host",
    "human": "postroom inbox shows what waits for a person",
    "approve": "postroom inbox answers what waits for a person; postroom reply ID TEXT --done answers one letter",
    "poll": "postroom check shows the unread mail; postroom wait waits for it",
    "fetch": "postroom check shows the unread mail; postroom wait waits for it",
    "dead-letters": "postroom dead lists the dead letters",
    "setting": "postroom rooms --settings shows the settings; --set NAME=VALUE changes one",
    "settings": "postroom rooms --settings shows the settings; --set NAME=VALUE changes one",
    "doctor fix": "--repair mends what is safe to mend",
    "doctor repair": "--repair mends what is safe to mend",
    "inbox list": "postroom check lists your mail; postroom inbox shows it live, at a terminal",
    "wait --for": "--timeout SPAN says how long to wait; --from NAME, for whose letter",
    "claim --ttl": "--lease SPAN says for how long the claim is yours",
    "search --from": "it stands in the query: from:NAME",
    "serve --port": "the address and the port are one: --http 127.0.0.1:4651",
    "serve --host": "the address and the port are one: --http 127.0.0.1:4651",
    "service install --port": "the address and the port are one: --http 127.0.0.1:4651",
    "service install --host": "the address and the port are one: --http 127.0.0.1:4651",
    "ask --to": "recipients are arguments: postroom ask NAME TEXT",
    "--to": "recipients are arguments: postroom send NAME TEXT",
    "-t": "recipients are arguments: postroom send NAME TEXT",
    "--ttl": "--expires SPAN says for how long the letter is offered",
    "--delay": "--at SPAN says when the letter is delivered",
    "--urgent": "--priority urgent",
    "--title": "--subject TEXT",
    "--format": "--json prints JSON",
    "--unread": "unread mail alone is shown without it; --all shows the rest, too",
    "--worker": "--as NAME names you",
    "--as-agent": "--as NAME names you",
    "-m": "the text follows the recipients, or --body TEXT",
    "--message": "the text follows the recipients, or --body TEXT",
    "--text": "the text follows the recipients, or --body TEXT",
    "--name": "--as NAME names you",
    "--agent": "--as NAME names you",
    "--from": "--as NAME names you, the sender",
    "--user": "--as NAME names you",
    "--fix": "--repair mends what is safe to mend",
    "-v": "postroom --version; --json shows every field",
    "--verbose": "--json shows every field",
    "--db": "--room ADDRESS names the room",
}


def resolve(first: str, second: str) -> tuple[str, str, int]:
    """Return the command that these words mean, the name that its answer has, and how many of the words name it.

    The name is empty where they mean no command. A noun may be singular or plural, and stands for its list.
    """
    typed = f"{first} {second}"
    if typed in FORMER:
        return FORMER[typed], typed, 2
    nouns = (first, f"{first}s", first.removesuffix("s"))
    for noun in nouns:
        for word in (second, *next((same for same in SAME if second in same), ())):
            name = ALSO.get(f"{noun} {word}", f"{noun} {word}")
            if name in COMMANDS:
                return name, name, 2
            if word == "list" and noun in COMMANDS and below(noun):
                return noun, noun, 2
    if first in FORMER:
        return FORMER[first], first, 1
    name = next((noun for noun in nouns if noun in COMMANDS or below(noun)), "")
    return name, name, 1


def below(name: str) -> list[str]:
    """Return the second words of the commands that begin with this word."""
    return [full.removeprefix(f"{name} ") for full in COMMANDS if full.startswith(f"{name} ")]

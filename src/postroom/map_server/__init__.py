"""The MAP server: who is connected, which agents are on which connection, and their mail, handed over for sure.

It refuses to know bytes: a rim reads and writes them, over WebSocket (`web.map_frames`) or any other way, and
drives a `Talk` for each connection. Above it stand the rims, below it `callers`, `hub` and `desk`.

    reception  all connections of a running post room: which agent is on which, who may come back as whom
    talk       one connection: what is said on it is carried out, as the agent that says it
    proving    who it is, and how it is let in
    gateway    another system's connection: it proves that it is a peer, and letters go both ways
    neighbour  the same of a system that comes as an agent and shows nothing, as agent-inbox does
    crew       its agents: they come, go, and are handed their mail
    admission  who somebody is, by its token; and which agents it may register
    handing    one agent's mail, to its connection; acknowledged by receipt
    telling    what happens to agents and scopes, for those who subscribe

**Where things are kept.** An agent, its role, parent, scopes and state are on its card, in the room: they outlive
the daemon. A scope's own description is a record of the room. Which connection an agent is on, what was handed to
it and not yet received, and who may resume what, is in memory: a restart ends every connection anyway. Then agents
are away, their mail is unread, and who comes back registers under its name and is handed all of it.

**What a receipt is.** MAP has no acknowledgement of a message, so `map/message` alone is a hope. A letter stays
unread in its mailbox until one of these is heard: the answer to a question that goes behind the message
(`map/ping`; the SDK answers every question once it has handled what came before, if only to say that it knows no
such method), or `map/message.ack` with its id, our own word, from those who said so when they connected. Of those
who leave questions unanswered the rim may know a lesser sign: over WebSocket a pong. Then it is
acknowledged, once and durably. A connection that is cut before that leaves its letters unread, and they are handed
out again under the same ids when the agent is back.
"""

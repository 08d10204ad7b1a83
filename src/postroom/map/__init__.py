"""MAP, the Multi-Agent Protocol: our server, and our link to somebody else's.

    session         one connection as the protocol sees it, without I/O
    table           the methods of MAP
    agents          the methods about agents and scopes
    routing         from an address to mailboxes; `map/send`
    server          all connections of a running server
    access          who a connection is, and as whom its agents act
    connection      one connection: agents, peers, mail
    delivery        one agent's mail, handed over until its receipt is sure
    subscriptions   events about agents and scopes
    frames, lines   MAP over WebSocket, and in lines on the Unix socket
    link            our link to a MAP server, for ever
    visit           one connection of that link
    carrier         messages to that server and from it
    directory       its agents here, our agents there

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

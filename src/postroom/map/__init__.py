"""MAP, the Multi-Agent Protocol: our server, and our link to a MAP server.

Server:

    server              all connections of a running server
    connection          one connection: who it is, its agents, and their mail
    session             one connection as the protocol sees it, without I/O; all methods by name
    methods             what methods share, and those about the connection itself; each is one struct
      agents            about agents
      scopes            about scopes
      routing           from an address to mailboxes; `map/send`, `map/replay`
    access              the principals that tokens prove, and the ids under which agents register
    delivery            the delivery of one agent's mail, until its receipt
    peer_link           the part of a connection in federation, where it belongs to another system
    events              events about agents and scopes

Link:

    link                the link to a MAP server, one session after the other
    link_messages       letters to that server, messages from it
    link_directory      its agents here, our agents there

**State.** An agent's role, parent, scopes and state are on its card, in the room: they outlive the server. A
scope's own description is a record of the room. Which connection an agent is on, which messages wait for a
receipt, and what a resume token brings back, is in memory: a restart ends every connection anyway. Then agents are
away and their mail is unread; an agent that comes back registers under its name and gets all of it.

**Receipts.** MAP has no acknowledgement of a message. A letter stays unread in its mailbox until one of these
came: the answer to the `map/ping` that goes behind the message (the SDK answers every call once it has handled
what came before, if only to say that it knows no such method), or `map/message.ack` with its id, our own
extension, from clients that announced it in `map/connect`. For clients that leave pings unanswered, the transport
may know a lesser sign: over WebSocket a pong. Then the letter is acknowledged, once and durably. A connection that
is cut before that leaves its letters unread, and they are sent again under the same ids when the agent is back.
"""

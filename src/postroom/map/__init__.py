"""MAP, the Multi-Agent Protocol: our server, and our link to a MAP server.

Server:

    session             one connection as the protocol sees it, without I/O
    table               all methods by name; what they share is in `method`, and each is one struct with its `run`:
      agents            about agents
      scopes            about scopes
      routing           from an address to mailboxes; `map/send`, `map/replay`
      connection_methods  about the connection itself
    server              all connections of a running server
    connection          one connection; it has three parts:
      access            who it is, and the principals of its agents
      connection_agents its agents and their mail
      peer_link         its part in federation, where it belongs to another system
    delivery            the delivery of one agent's mail, until its receipt
    subscriptions       events about agents and scopes
    frames, lines       MAP over WebSocket, and in lines on the Unix socket

Link:

    link                the link to a MAP server, for ever
    link_session        one session of that link
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

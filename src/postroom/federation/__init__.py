"""Messages between systems: this room and its peers, over one connection each.

    exchange     all links of a running server; what waits is given to the link that leads there
    link         one peer: its connections, and what to do when there is none
    dialler      the connection that we open, and open again
    connection   calls and answers over one connection
    methods      the methods that peers call
    incoming     what a peer asks of us: route, announce, find
    courier      sends what waits, many at once and in order
    exposure     which agents a peer is shown, and which it shows us
    lookup       where an agent is of which only the name is known
    mounts       a foreign mail folder as a system

**What a receipt is.** A letter stays queued in our room until the peer has said that it keeps it, and the peer
says so after it was made safe there. A connection that is cut in between leaves it queued: it is sent again, and
the peer, who knows its id, says once more that it has it. So nothing is lost, and nothing comes twice.

**Order.** Letters of one sender to one recipient keep their order though many are on their way at once: each says
behind which one it goes (`after`), and where that was refused for now, it is, too.
"""

"""Messages between systems: this room and its peers, over one connection each.

    exchange     all links of a running server; which link a waiting letter goes by
    link         one peer: its connections, and its problem while there is none
    dialler      the connections that we open, and open again
    connection   JSON-RPC calls and answers over one connection; that of agent-inbox
    peer_calls   the methods that peers call, and their handler: route, announce, find
    courier      sends what waits, many letters at once and in order; the rules for each answer
    exposure     which agents we announce to a peer, and which it announces to us
    lookup       finds the system of an agent of which only the name is known
    mounts       a foreign mail folder as a system

**Receipts.** A letter stays queued in our room until the peer has confirmed it, and the peer confirms it once it
is safe there. A connection that is cut in between leaves it queued: it is sent again, and the peer, which knows
its id, confirms it once more. So nothing is lost, and nothing comes twice.

**Order.** Letters of one sender to one recipient keep their order though many are sent at once: each names its
predecessor (`after`), and where that was refused for now, the peer refuses this one, too.
"""

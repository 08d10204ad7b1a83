"""Letters between systems: this room and its peers, each trusted as far as was agreed, over one connection each.

    exchange   all links of a running post room; what waits is given to the link that leads there
    link       one peer: its connections, whoever dialled, and whether there is one
    dialler    the connection that we open: dial, greet, and after a cut dial again
    greeting   the first words on it
    serving    what a peer asks of us: route, announce, find
    courier    what waits is sent, many at once and in order, and what became of it is written down
    parcels    one letter to all that it is for at one system, as it is put on a line
    exposing   who of ours a peer is told of, and whom it tells us of
    mounts     a foreign mail folder as a system; mounted: the room in it; guests: ours, shown there
    finding    where somebody is of whom only the name is known; seeking: by which link a letter to it goes
    inbox_line the connection of agent-inbox, which speaks otherwise, as one to a peer

**What a receipt is.** A letter stays queued in our room until the peer has said that it keeps it, and the peer
says so after it was made safe there. A connection that is cut in between leaves it queued: it is sent again, and
the peer, who knows its id, says once more that it has it. So nothing is lost, and nothing comes twice.

**Order.** Letters of one sender to one recipient keep their order though many are on their way at once: each says
behind which one it goes (`after`), and where that was refused for now, it is, too.

It refuses to know how mail is kept, what a peer may (`policy.trust`) and how letters are spelt (`wire`). Above it
stand the MAP server, by which peers come to us, and the daemon; below it `lines` and `desk`.
"""

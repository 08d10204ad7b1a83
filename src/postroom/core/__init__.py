"""The verbs: the room where policy meets the store at every commit, and where every caller is authorised.

A verb is a Struct of its parameters. `perform` authorises the `Principal` and runs it on the `Core` (store,
limits, clock, ids): it asks policy, then commits. Nothing here knows sockets, terminals or frameworks.

    core            the Core: store, limits, clock and ids; small records
    verb            what a verb is; how it is authorised and carried out, and made from the parameters of a wire
    authorize       the table of rights: which principal may do what
    names           current and former names of an agent
    due             what is due by the clock, done a little after each verb that writes
    compose         from a caller's fields to a checked message; files and templates
    addressing      from addresses to mailboxes: guards, former names, `any:` addresses
    messages        send, reply, forward, broadcast, handoff, unsend; the rate of answers (G11)
    templates       letters written beforehand, with places to fill in
    inbox           check, read, counts, wait
    search          messages by their words, by sender, by the beginning of an id; lists of them in short
    presentation    messages as text for prompts, fenced
    deliveries      moving deliveries; notices and bounces
    folders         folders and files of a room in mail folders
    work            claim, ack, fail, release, renew; ask: send a request, wait for its answer
    dead            dead letters: list, revive, delete
    threads         threads; filter, count and summarise the turns of a conversation
    conversations   open, join, leave, invite, close a conversation; take a turn
    task_index      where each task stands, kept in the commit of its messages
    tasks           give, list and move tasks; deadlines
    escalation      escalate, resolve, climb
    agents          cards, heartbeats, presence, guards, scopes
    tokens          tokens that prove which agent or operator is calling
    alerts          notify an agent of mail, and the log of that
    webhooks        the URLs to call when mail waits
    outbox          mail for other systems, and whether anything carries it there now
    arrivals        mail from other systems
    peers           other systems: the allow list, proof of identity, mounted folders, invitations
    transfer        copy from one room into another
    portable        export and import of a room; backups
    retention       what the janitor does: leases, expiry, archive, retention
    doctor          the health of a room, and safe repairs
    waiting_list    what waits for an agent or for the person
    board           who waits for whom, and what is stuck
    stats           a room in numbers, and the life of one message
"""

-- A room, first shape. Times are microseconds of UTC; `number` is the order of acceptance, over all tables.

CREATE TABLE room (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    name TEXT NOT NULL,         -- random, names this room for ever
    epoch TEXT NOT NULL,        -- new after every boot: cursors of another epoch are told to resync
    boot TEXT NOT NULL,
    trimmed INTEGER NOT NULL    -- cursors below this number are told to resync
);

-- Every name that ever wrote, was written to or registered. `folded` makes look-alikes one.
CREATE TABLE mailboxes (
    id INTEGER PRIMARY KEY,
    folded TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    known INTEGER NOT NULL      -- it wrote or registered; else it was only written to
);

-- A letter never changes. `body` is all of it; the other columns repeat what is asked for.
CREATE TABLE letters (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    sender INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    kind TEXT,                  -- NULL: message
    scope TEXT,                 -- NULL: default
    tags TEXT,                  -- a JSON list
    thread TEXT,                -- NULL in a root letter: most letters then cost no index page
    thread_tag TEXT,
    conversation TEXT,          -- NULL: the scope's catch-all
    key TEXT,                   -- NULL: the id is the key
    sum INTEGER NOT NULL,       -- CRC-32 of the body: a damaged letter is never shown
    body BLOB NOT NULL
);
CREATE INDEX letters_by_thread ON letters (thread, number) WHERE thread IS NOT NULL;
CREATE INDEX letters_by_tag ON letters (thread_tag, number) WHERE thread_tag IS NOT NULL;
CREATE INDEX letters_by_conversation ON letters (conversation, number) WHERE conversation IS NOT NULL;
CREATE UNIQUE INDEX letters_by_key ON letters (sender, key) WHERE key IS NOT NULL;

-- One letter at one mailbox. state: 0 queued, 1 unread, 2 claimed, 3 done, 4 dead. rank: 0 urgent … 3 low.
CREATE TABLE deliveries (
    number INTEGER NOT NULL,
    mailbox INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    state INTEGER NOT NULL,
    seen INTEGER NOT NULL,      -- has it a read_at?
    rank INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    delivered_at INTEGER,
    read_at INTEGER,
    acked_at INTEGER,
    dead_at INTEGER,
    due_at INTEGER,
    archived_at INTEGER,
    expires_at INTEGER,
    lease_token TEXT,
    lease_holder TEXT,
    lease_until REAL,
    lease_boot TEXT,
    reason TEXT,
    history BLOB,
    arrived INTEGER,            -- the number of its coming, if it came later than the letter was accepted
    PRIMARY KEY (number, mailbox)
) WITHOUT ROWID;
CREATE INDEX deliveries_unread ON deliveries (mailbox, seen, rank, number) WHERE state = 1;
CREATE INDEX deliveries_held ON deliveries (mailbox, lease_until) WHERE state = 2;
CREATE INDEX deliveries_queued ON deliveries (mailbox, due_at) WHERE state = 0;
CREATE INDEX deliveries_later ON deliveries (mailbox, due_at) WHERE state = 1 AND due_at IS NOT NULL;
CREATE INDEX deliveries_late ON deliveries (arrived) WHERE arrived IS NOT NULL;
CREATE INDEX deliveries_expiring ON deliveries (expires_at) WHERE state < 2 AND expires_at IS NOT NULL;
CREATE INDEX deliveries_unarchived ON deliveries (acked_at) WHERE state = 3 AND archived_at IS NULL;
CREATE INDEX deliveries_dead ON deliveries (mailbox, number) WHERE state = 4;

-- Letters that were found damaged, as they were found. They block nobody.
CREATE TABLE quarantine (
    number INTEGER PRIMARY KEY,
    id TEXT,
    body BLOB
);

CREATE TABLE records (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

-- What happened, besides letters being accepted: those are read off `letters`, whose numbers are of the same
-- series, so that a send pays for no second row.
CREATE TABLE changes (
    number INTEGER PRIMARY KEY,
    what TEXT NOT NULL,
    letter INTEGER,             -- its number
    mailbox INTEGER,
    state INTEGER,
    kind TEXT,
    key TEXT
);

-- A room in a schema of its own, first shape. `ROOM` stands for the name of the schema. Times are microseconds of UTC;
-- `number` is the order of acceptance, over letters and changes. Text is compared byte by byte, whatever the database
-- is set to.

CREATE TABLE ROOM.room (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    version int NOT NULL,
    name text NOT NULL,         -- random, names this room for ever
    epoch text NOT NULL,        -- cursors of another epoch are told to resync
    boot text NOT NULL,         -- of the clock that leases go by: one for the life of a server
    trimmed bigint NOT NULL     -- cursors below this number are told to resync
);
INSERT INTO ROOM.room (version, name, epoch, boot, trimmed)
VALUES (0, left(md5(gen_random_uuid()::text), 16), left(md5(gen_random_uuid()::text), 8), '', 0);

-- One row, empty after each crash of the server and on each promoted standby, where commits that nobody waited for are
-- lost. `home` is the table itself, so that a row out of a dump does not count either.
CREATE UNLOGGED TABLE ROOM.alive (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    home oid NOT NULL,
    token text NOT NULL
);

-- Every name that ever wrote, was written to or registered. `folded` makes look-alikes one.
CREATE TABLE ROOM.mailboxes (
    id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    folded text COLLATE "C" NOT NULL UNIQUE,
    name text COLLATE "C" NOT NULL,
    known boolean NOT NULL,     -- it wrote or registered; else it was only written to
    -- the other system that the name includes: all mail for it counts together
    system text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN strpos(name, '@') > 0 THEN
        lower(split_part(substr(name, strpos(name, '@') + 1), '/', 1) COLLATE "C") END) STORED
);
CREATE INDEX mailboxes_by_system ON ROOM.mailboxes (system) WHERE system IS NOT NULL;

-- Names that a mailbox had before: mail to them arrives all the same.
CREATE TABLE ROOM.aliases (
    folded text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    mailbox int NOT NULL
);

-- A letter never changes. `body` is all of it; the other columns repeat what is asked for.
CREATE TABLE ROOM.letters (
    number bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    sender int NOT NULL,
    created_at bigint NOT NULL,
    kind text COLLATE "C",      -- NULL: message
    scope text COLLATE "C",     -- NULL: default
    tags text COLLATE "C",      -- a JSON list
    thread text COLLATE "C",    -- NULL in a root letter
    thread_tag text COLLATE "C",
    conversation text COLLATE "C", -- NULL: the scope's catch-all
    key text COLLATE "C",       -- NULL: the id is the key
    sum bigint NOT NULL,        -- CRC-32 of the body: a damaged letter is never shown
    body bytea NOT NULL
);
ALTER TABLE ROOM.letters ALTER body SET STORAGE EXTENDED;
CREATE INDEX letters_by_sender ON ROOM.letters (sender, number);
CREATE INDEX letters_by_thread ON ROOM.letters (thread, number) WHERE thread IS NOT NULL;
CREATE INDEX letters_by_tag ON ROOM.letters (thread_tag, number) WHERE thread_tag IS NOT NULL;
CREATE INDEX letters_by_conversation ON ROOM.letters (conversation, number) WHERE conversation IS NOT NULL;
CREATE INDEX letters_by_scope ON ROOM.letters (scope, number) WHERE conversation IS NULL;
CREATE INDEX letters_requests ON ROOM.letters (number) WHERE kind = 'request';
CREATE UNIQUE INDEX letters_by_key ON ROOM.letters (sender, key) WHERE key IS NOT NULL;

-- One letter at one mailbox. state: 0 queued, 1 unread, 2 claimed, 3 done, 4 dead. rank: 0 urgent … 3 low.
CREATE TABLE ROOM.deliveries (
    number bigint NOT NULL,
    mailbox int NOT NULL,
    kind smallint NOT NULL,
    state smallint NOT NULL,
    seen smallint NOT NULL,     -- 1: it has a read_at
    rank smallint NOT NULL,
    revision int NOT NULL,
    attempts int NOT NULL,
    delivered_at bigint,
    read_at bigint,
    acked_at bigint,
    dead_at bigint,
    due_at bigint,
    archived_at bigint,
    expires_at bigint,
    lease_token text COLLATE "C",
    lease_holder text COLLATE "C",
    lease_until double precision,
    lease_boot text COLLATE "C",
    reason text COLLATE "C",
    history text COLLATE "C",
    arrived bigint,             -- the number of its coming, if it came later than the letter was accepted
    PRIMARY KEY (number, mailbox)
);
CREATE INDEX deliveries_by_mailbox ON ROOM.deliveries (mailbox, number);
CREATE INDEX deliveries_unread ON ROOM.deliveries (mailbox, seen, rank, number) WHERE state = 1;
CREATE INDEX deliveries_held ON ROOM.deliveries (mailbox, lease_until) WHERE state = 2;
CREATE INDEX deliveries_queued ON ROOM.deliveries (mailbox, due_at) WHERE state = 0;
CREATE INDEX deliveries_later ON ROOM.deliveries (mailbox, due_at) WHERE state = 1 AND due_at IS NOT NULL;
CREATE INDEX deliveries_late ON ROOM.deliveries (arrived) WHERE arrived IS NOT NULL;
CREATE INDEX deliveries_expiring ON ROOM.deliveries (expires_at) WHERE state < 2 AND expires_at IS NOT NULL;
CREATE INDEX deliveries_unarchived ON ROOM.deliveries (acked_at) WHERE state = 3 AND archived_at IS NULL;
CREATE INDEX deliveries_dead ON ROOM.deliveries (mailbox, number) WHERE state = 4;
-- Most rows change three times: the dead versions must go soon.
ALTER TABLE ROOM.deliveries SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Letters that were found damaged, as they were found. They block nobody.
CREATE TABLE ROOM.quarantine (
    number bigint PRIMARY KEY,
    id text COLLATE "C",
    body bytea
);

CREATE TABLE ROOM.records (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    revision int NOT NULL,
    value text COLLATE "C" NOT NULL, -- JSON, as it was written
    PRIMARY KEY (kind, key)
);
ALTER TABLE ROOM.records SET (fillfactor = 70); -- heartbeats then change in place

-- What happened, besides letters being accepted: those are read off `letters`, whose numbers are of the same series.
CREATE TABLE ROOM.changes (
    number bigint PRIMARY KEY,
    what text NOT NULL,
    letter bigint,              -- its number
    mailbox int,
    state smallint,
    kind text COLLATE "C",
    key text COLLATE "C"
);
CREATE INDEX changes_unread ON ROOM.changes (mailbox, number) WHERE state = 1;

-- The text index: filled lazily, in the order of the letters; what is behind is scanned.
CREATE TABLE ROOM.words (
    number bigint PRIMARY KEY,
    said tsvector NOT NULL
);
CREATE INDEX words_said ON ROOM.words USING gin (said);

-- How many letters count towards the quota of an inbox, or of the outbox for another system: kept, so that a send
-- need not count them. A letter counts while it is open (state < 3) and has no read_at.
CREATE TABLE waiting (
    place NOT NULL,             -- a mailbox's id; of mail for another system, the folded name of that system
    sender INTEGER NOT NULL,    -- a mailbox's id; 0: all senders together
    letters INTEGER NOT NULL,
    PRIMARY KEY (place, sender)
) WITHOUT ROWID;

INSERT INTO waiting
SELECT iif(instr(m.name, '@'),
           lower(substr(m.name, instr(m.name, '@') + 1,
                        instr(substr(m.name, instr(m.name, '@') + 1) || '/', '/') - 1)),
           m.id),
       l.sender, count(*)
FROM deliveries d JOIN letters l ON l.number = d.number JOIN mailboxes m ON m.id = d.mailbox
WHERE d.state < 3 AND d.seen = 0 GROUP BY 1, 2;
INSERT INTO waiting SELECT place, 0, sum(letters) FROM waiting GROUP BY place;

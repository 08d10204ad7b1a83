-- Names that a mailbox had before: mail to them arrives all the same.
CREATE TABLE aliases (
    folded TEXT PRIMARY KEY,
    name TEXT NOT NULL,         -- as it was spelt
    mailbox INTEGER NOT NULL
) WITHOUT ROWID;

-- The human has one mailbox from now on, whatever a design calls them (model/names.py).
INSERT OR IGNORE INTO mailboxes (folded, name, known)
SELECT 'human', 'human', max(known) FROM mailboxes WHERE folded IN ('user', 'ceo') HAVING count(*) > 0;
UPDATE OR IGNORE deliveries SET mailbox = (SELECT id FROM mailboxes WHERE folded = 'human')
WHERE mailbox IN (SELECT id FROM mailboxes WHERE folded IN ('user', 'ceo'));
DELETE FROM deliveries WHERE mailbox IN (SELECT id FROM mailboxes WHERE folded IN ('user', 'ceo'));
UPDATE OR IGNORE letters SET sender = (SELECT id FROM mailboxes WHERE folded = 'human')
WHERE sender IN (SELECT id FROM mailboxes WHERE folded IN ('user', 'ceo'));
INSERT INTO aliases SELECT folded, name, (SELECT id FROM mailboxes WHERE folded = 'human') FROM mailboxes
WHERE folded IN ('user', 'ceo');
DELETE FROM mailboxes WHERE folded IN ('user', 'ceo');

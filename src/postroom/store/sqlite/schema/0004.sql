-- The letters of a scope's catch-all conversation: the conversations of a room are found without reading all letters.
-- It holds the conversation, which is NULL, so that a count reads the index alone.
CREATE INDEX letters_by_scope ON letters (scope, conversation, number) WHERE conversation IS NULL;

-- How many letters and deliveries there are: kept, because counting a million takes long.
CREATE TABLE totals (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    letters INTEGER NOT NULL,
    deliveries INTEGER NOT NULL
);
INSERT INTO totals SELECT 1, (SELECT count(*) FROM letters), (SELECT count(*) FROM deliveries);
CREATE TRIGGER letter_added AFTER INSERT ON letters BEGIN
    UPDATE totals SET letters = letters + 1;
END;
CREATE TRIGGER letter_deleted AFTER DELETE ON letters BEGIN
    UPDATE totals SET letters = letters - 1;
END;
CREATE TRIGGER delivery_added AFTER INSERT ON deliveries BEGIN
    UPDATE totals SET deliveries = deliveries + 1;
END;
CREATE TRIGGER delivery_deleted AFTER DELETE ON deliveries BEGIN
    UPDATE totals SET deliveries = deliveries - 1;
END;

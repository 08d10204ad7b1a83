-- The letters of a scope's catch-all conversation: the conversations of a room are found without reading all letters.
-- It holds the conversation, which is NULL, so that a count reads the index alone.
CREATE INDEX letters_by_scope ON letters (scope, conversation, number) WHERE conversation IS NULL;

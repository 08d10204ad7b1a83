-- The letters of a scope's catch-all conversation: the conversations of a room are found without reading all letters.
CREATE INDEX letters_by_scope ON letters (scope, number) WHERE conversation IS NULL;

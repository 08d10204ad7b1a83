-- psql takes a function with this name for a block that never ends: what pg_dump writes could not be restored with it.
DROP FUNCTION IF EXISTS ROOM.begin(text);

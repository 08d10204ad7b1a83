-- The requests, so that the open ones of a room are found without reading every open letter.
CREATE INDEX letters_requests ON letters (number) WHERE kind = 'request';

-- The commit path, made anew by each migration. `ROOM` stands for the name of the schema. Errors of ours have codes that
-- begin with PR; `errors.py` turns them into the errors of the house.

-- Take the room's lock for the rest of the transaction. Whoever reads after this sees all that was committed before.
CREATE OR REPLACE FUNCTION ROOM.enter(patience int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Only for this transaction: another setting of the session would reach strangers through PgBouncer.
    PERFORM set_config('lock_timeout', patience::text, true), set_config('synchronous_commit', 'off', true),
            pg_advisory_xact_lock('ROOM'::regnamespace::oid::int4, 1);
END $$;

-- Make all that was committed before durable, as far as `level` says: the commit of this transaction waits for it.
CREATE OR REPLACE FUNCTION ROOM.flush(level text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', level, true), pg_logical_emit_message(true, 'postroom', '');
END $$;

-- Tell who listens that there is something new. In a transaction of its own, which waits for no disk: NOTIFY takes one
-- lock for the whole server at commit.
CREATE OR REPLACE FUNCTION ROOM.ring(bell text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), pg_notify('postroom ROOM', bell);
END $$;

-- The number that the next letter or change gets. Call it under the lock.
CREATE OR REPLACE FUNCTION ROOM.next_number() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN 1 + greatest((SELECT max(l.number) FROM ROOM.letters l), (SELECT max(c.number) FROM ROOM.changes c), 0);
END $$;

-- The id of a mailbox, made if need be.
CREATE OR REPLACE FUNCTION ROOM.mailbox(wanted text, field text, makes_known boolean) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    found_id int;
    held text;
    was_known boolean;
BEGIN
    SELECT m.id, m.name, m.known INTO found_id, held, was_known FROM ROOM.mailboxes m
    WHERE m.folded = lower(wanted COLLATE "C");
    IF NOT FOUND THEN
        -- A renamed agent keeps its former name, so that no other agent can take it.
        SELECT m.id, a.name, m.known INTO found_id, held, was_known FROM ROOM.aliases a
        JOIN ROOM.mailboxes m ON m.id = a.mailbox WHERE a.folded = lower(wanted COLLATE "C");
    END IF;
    IF found_id IS NULL THEN
        INSERT INTO ROOM.mailboxes (folded, name, known) VALUES (lower(wanted COLLATE "C"), wanted, makes_known)
        RETURNING id INTO found_id;
    ELSIF held <> wanted THEN
        -- Names that differ only in case are refused: they could be taken for one agent.
        RAISE EXCEPTION USING ERRCODE = 'PR007', MESSAGE = 'look-alike',
            DETAIL = jsonb_build_object('name', wanted, 'held', held, 'field', field);
    ELSIF makes_known AND NOT was_known THEN
        UPDATE ROOM.mailboxes SET known = true WHERE id = found_id;
    END IF;
    RETURN found_id;
END $$;

-- How many letters count towards a quota at these mailboxes: of all senders, and of one.
CREATE OR REPLACE FUNCTION ROOM.waiting(places int[], of_sender int, OUT total bigint, OUT own bigint)
LANGUAGE sql STABLE AS $$
    WITH open AS (
        SELECT number FROM ROOM.deliveries WHERE mailbox = ANY (places) AND state = 1 AND seen = 0
        UNION ALL SELECT number FROM ROOM.deliveries WHERE mailbox = ANY (places) AND state = 2 AND seen = 0
        UNION ALL SELECT number FROM ROOM.deliveries WHERE mailbox = ANY (places) AND state = 0 AND seen = 0
    )
    SELECT count(*), count(*) FILTER (WHERE of_sender IS NOT NULL
        AND (SELECT l.sender FROM ROOM.letters l WHERE l.number = open.number) = of_sender) FROM open
$$;

-- Refuse a letter for which an inbox, or the outbox for another system, has no room.
CREATE OR REPLACE FUNCTION ROOM.check_space(
    accepted bigint, sender_name text, sender int, names text[], ids int[], quota bigint, outbox bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    bound bigint;
    far text;
    places int[];
    total bigint;
    own bigint;
    more bigint;
BEGIN
    FOR i IN 1 .. cardinality(names) LOOP
        bound := CASE WHEN strpos(names[i], '@') > 0 THEN outbox ELSE quota END;
        -- An inbox holds no more letters than the room ever accepted, and one sender gets half of the space: in a young
        -- room nothing is counted.
        CONTINUE WHEN bound IS NULL OR (strpos(names[i], '@') = 0 AND 2 * accepted <= bound);
        SELECT m.system INTO far FROM ROOM.mailboxes m WHERE m.id = ids[i];
        places := CASE WHEN far IS NULL THEN ARRAY[ids[i]] ELSE ARRAY(
            SELECT m.id FROM ROOM.mailboxes m WHERE m.system = far) END;
        SELECT count(*) INTO more FROM unnest(ids[:i]) AS u(id) WHERE u.id = ANY (places);
        SELECT w.total INTO total FROM ROOM.waiting(places, NULL) w;
        CONTINUE WHEN 2 * (total + more) <= bound; -- then one sender has its share, too
        SELECT w.own INTO own FROM ROOM.waiting(places, sender) w;
        IF total + more > bound OR own + more > greatest(1, (bound - total + own) / 2) THEN
            RAISE EXCEPTION USING ERRCODE = 'PR006', MESSAGE = 'quota', DETAIL = jsonb_build_object(
                'sender', sender_name, 'mailbox', names[i], 'total', total, 'own', own, 'limit', bound, 'more', more);
        END IF;
    END LOOP;
END $$;

-- Must the caller look at a letter, under the lock, before it is accepted? It may repeat another, or a guard or a route
-- must see it.
CREATE OR REPLACE FUNCTION ROOM.must_look(w jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    wanted_id text := w->'letter'->>'id';
    wanted_key text := w->'letter'->>'key';
BEGIN
    PERFORM FROM ROOM.letters l WHERE l.id = wanted_id
    UNION ALL SELECT FROM ROOM.records r WHERE r.kind = 'forgotten' AND r.key = wanted_id
    UNION ALL SELECT FROM ROOM.records r WHERE r.kind = 'spent' AND r.key = w->>'spent'
    UNION ALL SELECT FROM ROOM.records r WHERE r.kind IN ('guard', 'route') AND (w->>'asks')::boolean
    LIMIT 1;
    IF NOT FOUND AND wanted_key IS NOT NULL THEN
        PERFORM FROM ROOM.mailboxes m JOIN ROOM.letters l ON l.sender = m.id AND l.key = wanted_key
        WHERE m.folded = lower((w->>'sender') COLLATE "C")
        UNION ALL SELECT FROM ROOM.letters l JOIN ROOM.mailboxes m ON m.id = l.sender
            WHERE l.id = wanted_key AND l.key IS NULL AND m.name = w->>'sender'
        LIMIT 1;
    END IF;
    RETURN FOUND;
END $$;

-- Accept a letter. If one of the same commit has its id or key, PR001: then the caller looks, and comes again.
CREATE OR REPLACE FUNCTION ROOM.post(w jsonb, body bytea, number bigint, OUT unknown jsonb) LANGUAGE plpgsql AS $$
DECLARE
    letter ROOM.letters := jsonb_populate_record(NULL::ROOM.letters, w->'letter');
    d ROOM.deliveries;
    names text[] := ARRAY(SELECT jsonb_array_elements_text(w->'names'));
    ids int[];
    sender_name text := w->>'sender';
    are_known boolean;
    many int;
BEGIN
    letter.number := post.number;
    SELECT m.id INTO letter.sender FROM ROOM.mailboxes m
    WHERE m.folded = lower(sender_name COLLATE "C") AND m.name = sender_name AND m.known;
    IF NOT FOUND THEN
        letter.sender := ROOM.mailbox(sender_name, 'sender', true);
    END IF;
    letter.body := post.body;
    -- One name is looked up by itself: a fifth of a send less.
    SELECT ARRAY[m.id], m.known INTO ids, are_known FROM ROOM.mailboxes m
    WHERE cardinality(names) = 1 AND m.folded = lower(names[1] COLLATE "C") AND m.name = names[1];
    IF NOT FOUND THEN
        SELECT array_agg(m.id ORDER BY u.place), bool_and(m.known) INTO ids, are_known
        FROM unnest(names) WITH ORDINALITY u(name, place)
        JOIN ROOM.mailboxes m ON m.folded = lower(u.name COLLATE "C") AND m.name = u.name;
    END IF;
    IF cardinality(ids) IS DISTINCT FROM cardinality(names) THEN -- some are new, or former names, or look like others
        ids := ARRAY(SELECT ROOM.mailbox(u.name, 'to', false) FROM unnest(names) WITH ORDINALITY u(name, place)
                     ORDER BY u.place);
        are_known := false;
    END IF;
    IF NOT are_known THEN
        SELECT jsonb_agg(u.name ORDER BY u.place) INTO unknown
        FROM unnest(names, ids) WITH ORDINALITY u(name, id, place) JOIN ROOM.mailboxes m ON m.id = u.id
        WHERE NOT m.known AND m.system IS NULL;
    END IF;
    IF unknown IS NOT NULL AND (w->>'known_only')::boolean THEN
        RAISE EXCEPTION USING ERRCODE = 'PR005', MESSAGE = 'unknown agent', DETAIL = unknown->>0;
    END IF;
    IF 2 * letter.number > (w->>'quota')::bigint OR strpos(array_to_string(names, ' '), '@') > 0 THEN
        PERFORM ROOM.check_space(letter.number, sender_name, letter.sender, names, ids,
                                 (w->>'quota')::bigint, (w->>'outbox')::bigint);
    END IF;
    INSERT INTO ROOM.letters VALUES (letter.*) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PR001', MESSAGE = 'look first';
    END IF;
    many := jsonb_array_length(w->'deliveries');
    IF many = 1 THEN -- by itself: quicker than a set
        d := jsonb_populate_record(NULL::ROOM.deliveries, w->'deliveries'->0);
        d.number := letter.number;
        d.mailbox := ids[1];
        INSERT INTO ROOM.deliveries VALUES (d.*);
    ELSE
        INSERT INTO ROOM.deliveries
        SELECT letter.number, ids[u.place], u.kind, u.state, u.seen, u.rank, u.revision, u.attempts, u.delivered_at,
               u.read_at, u.acked_at, u.dead_at, u.due_at, u.archived_at, u.expires_at, u.lease_token, u.lease_holder,
               u.lease_until, u.lease_boot, u.reason, u.history, u.arrived
        FROM ROWS FROM (jsonb_populate_recordset(NULL::ROOM.deliveries, w->'deliveries')) WITH ORDINALITY
             AS u(number, mailbox, kind, state, seen, rank, revision, attempts, delivered_at, read_at, acked_at, dead_at,
                  due_at, archived_at, expires_at, lease_token, lease_holder, lease_until, lease_boot, reason, history,
                  arrived, place);
    END IF;
    IF cardinality(ids) > many THEN
        -- Further mailboxes get deliveries like the first one.
        d := jsonb_populate_record(NULL::ROOM.deliveries, w->'deliveries'->0);
        INSERT INTO ROOM.deliveries
        SELECT letter.number, u.id, d.kind, d.state, d.seen, d.rank, d.revision, d.attempts, d.delivered_at, d.read_at,
               d.acked_at, d.dead_at, d.due_at, d.archived_at, d.expires_at, d.lease_token, d.lease_holder,
               d.lease_until, d.lease_boot, d.reason, d.history, d.arrived
        FROM unnest(ids[many + 1:]) u(id);
    END IF;
END $$;

-- Move a delivery that is still at its revision and, if it is claimed, under the same lease token (G5).
CREATE OR REPLACE FUNCTION ROOM.move(w jsonb, change bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    d ROOM.deliveries := jsonb_populate_record(NULL::ROOM.deliveries, w->'after');
    home int := ROOM.mailbox(w->>'mailbox', 'mailbox', (w->>'lives')::boolean);
BEGIN
    d.mailbox := home;
    IF w->>'to' IS NOT NULL THEN
        d.mailbox := ROOM.mailbox(w->>'to', 'to', false);
        DELETE FROM ROOM.deliveries o WHERE o.number = d.number AND o.mailbox = home
        AND o.revision = (w->>'revision')::int AND o.lease_token IS NOT DISTINCT FROM w->>'token';
        IF FOUND THEN
            INSERT INTO ROOM.deliveries VALUES (d.*);
        END IF;
    ELSE
        -- The number of its arrival: a cursor that has passed the letter's own number must still meet it.
        d.arrived := CASE WHEN w->>'action' = 'deliver' THEN change ELSE d.arrived END;
        UPDATE ROOM.deliveries o SET
            kind = d.kind, state = d.state, seen = d.seen, rank = d.rank, revision = d.revision,
            attempts = d.attempts, delivered_at = d.delivered_at, read_at = d.read_at, acked_at = d.acked_at,
            dead_at = d.dead_at, due_at = d.due_at, archived_at = d.archived_at, expires_at = d.expires_at,
            lease_token = d.lease_token, lease_holder = d.lease_holder, lease_until = d.lease_until,
            lease_boot = d.lease_boot, reason = d.reason, history = d.history, arrived = d.arrived
        -- Nothing about the state here: the planner would walk the dead entries of the index of held mail.
        WHERE o.number = d.number AND o.mailbox = home AND o.revision = (w->>'revision')::int
        AND o.lease_token IS NOT DISTINCT FROM w->>'token';
    END IF;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM ROOM.deliveries o WHERE o.number = d.number AND o.mailbox = home) THEN
            RAISE EXCEPTION USING ERRCODE = 'PR002', MESSAGE = 'stale revision';
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'PR003', MESSAGE = 'unknown message';
    END IF;
    INSERT INTO ROOM.changes (number, what, letter, mailbox, state) VALUES (change, 'moved', d.number, d.mailbox, d.state);
END $$;

-- Write a record that is still at its revision; 0 stands for "not there yet". Return how many changes it makes.
CREATE OR REPLACE FUNCTION ROOM.put(w jsonb, change bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    held int;
    told int := (w->>'durable')::boolean::int;
    expected int := (w->>'revision')::int;
BEGIN
    SELECT r.revision INTO held FROM ROOM.records r WHERE r.kind = w->>'kind' AND r.key = w->>'key';
    IF coalesce(held, 0) <> expected THEN
        RAISE EXCEPTION USING ERRCODE = 'PR002', MESSAGE = 'stale revision';
    END IF;
    IF w->>'kind' = 'card' THEN
        PERFORM ROOM.mailbox(w->>'key', 'id', true);
    END IF;
    IF w->>'value' IS NULL THEN
        DELETE FROM ROOM.records r WHERE r.kind = w->>'kind' AND r.key = w->>'key';
    ELSIF held IS NULL THEN
        INSERT INTO ROOM.records VALUES (w->>'kind', w->>'key', (w->>'first')::int, w->>'value');
    ELSE
        UPDATE ROOM.records r SET revision = expected + 1, value = w->>'value'
        WHERE r.kind = w->>'kind' AND r.key = w->>'key';
    END IF;
    IF told = 1 THEN
        INSERT INTO ROOM.changes (number, what, kind, key) VALUES (change, 'put', w->>'kind', w->>'key');
    END IF;
    RETURN told;
END $$;

-- Delete a letter whose deliveries are all settled: nothing removes one that a recipient may still get (G4).
CREATE OR REPLACE FUNCTION ROOM.forget(w jsonb, change bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    gone bigint;
BEGIN
    SELECT l.number INTO gone FROM ROOM.letters l WHERE l.id = w->>'id';
    IF gone IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PR003', MESSAGE = 'unknown message';
    ELSIF EXISTS (SELECT FROM ROOM.deliveries d WHERE d.number = gone AND d.state < 3) THEN
        RAISE EXCEPTION USING ERRCODE = 'PR004', MESSAGE = 'not settled';
    END IF;
    DELETE FROM ROOM.deliveries d WHERE d.number = gone;
    DELETE FROM ROOM.letters l WHERE l.number = gone;
    DELETE FROM ROOM.words s WHERE s.number = gone;
    INSERT INTO ROOM.changes (number, what, key) VALUES (change, 'forgot', w->>'id');
END $$;

-- Give a mailbox another name. Its id stays, so its mail and remembered ids stay valid.
CREATE OR REPLACE FUNCTION ROOM.rename(w jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old_name text := lower((w->>'old') COLLATE "C");
    new_name text := lower((w->>'new') COLLATE "C");
    home int := (SELECT id FROM ROOM.mailboxes WHERE folded = old_name);
    taken text;
BEGIN
    IF home IS NULL THEN
        home := ROOM.mailbox(w->>'new', 'new', false);
    ELSIF old_name <> new_name AND EXISTS (SELECT FROM ROOM.mailboxes WHERE folded = new_name) THEN
        RAISE EXCEPTION USING ERRCODE = 'PR008', MESSAGE = 'another agent is called ' || (w->>'new'), DETAIL = 'new';
    END IF;
    SELECT a.folded INTO taken FROM ROOM.aliases a WHERE a.folded IN (old_name, new_name) AND a.mailbox <> home;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PR008', MESSAGE = taken || ' was another''s name',
            DETAIL = CASE WHEN taken = old_name THEN 'old' ELSE 'new' END;
    END IF;
    DELETE FROM ROOM.aliases WHERE folded = new_name;
    UPDATE ROOM.mailboxes SET folded = new_name, name = w->>'new' WHERE id = home;
    IF old_name <> new_name THEN
        INSERT INTO ROOM.aliases VALUES (old_name, w->>'old', home)
        ON CONFLICT (folded) DO UPDATE SET name = excluded.name, mailbox = excluded.mailbox;
    END IF;
END $$;

-- Make the writes of one commit, in their order. Call it under the lock. Return a list of number and unknown names, one
-- for each letter; or NULL, with nothing written, if the caller is not `sure` and must look at a letter first.
CREATE OR REPLACE FUNCTION ROOM.apply(writes jsonb, bodies bytea[], sure boolean) RETURNS text LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan AS $$ -- else statements with arrays are planned anew each time
DECLARE
    w jsonb;
    posted jsonb := '[]';
    number bigint;
BEGIN
    SELECT 1 + greatest((SELECT max(l.number) FROM ROOM.letters l), (SELECT max(c.number) FROM ROOM.changes c), 0)
    INTO number;
    IF NOT sure THEN
        FOR w IN SELECT value FROM jsonb_array_elements(writes) WHERE value->>'write' = 'post' LOOP
            IF ROOM.must_look(w) THEN
                RETURN NULL;
            END IF;
        END LOOP;
    END IF;
    FOR w IN SELECT value FROM jsonb_array_elements(writes) LOOP
        CASE w->>'write'
        WHEN 'post' THEN
            posted := posted || jsonb_build_array(jsonb_build_array(
                number, ROOM.post(w, bodies[jsonb_array_length(posted) + 1], number)));
            number := number + 1;
        WHEN 'move' THEN
            PERFORM ROOM.move(w, number);
            number := number + 1;
        WHEN 'put' THEN
            number := number + ROOM.put(w, number);
        WHEN 'forget' THEN
            PERFORM ROOM.forget(w, number);
            number := number + 1;
        WHEN 'introduce' THEN
            PERFORM ROOM.mailbox(w->>'mailbox', 'mailbox', (w->>'known')::boolean);
        WHEN 'rename' THEN
            PERFORM ROOM.rename(w);
        WHEN 'renew' THEN
            UPDATE ROOM.room SET epoch = left(md5(gen_random_uuid()::text), 8);
        END CASE;
    END LOOP;
    RETURN posted;
END $$;

-- One commit in one round trip: lock, write, commit without waiting for the disk, which leaves the lock; then flush what
-- must last; then ring.
CREATE OR REPLACE PROCEDURE ROOM.commit(
    writes jsonb, bodies bytea[], patience int, level text, bell text, INOUT posted text
) LANGUAGE plpgsql AS $$
BEGIN
    -- As `enter` does; a call would cost a tenth of a send.
    PERFORM set_config('lock_timeout', patience::text, true), set_config('synchronous_commit', 'off', true),
            pg_advisory_xact_lock('ROOM'::regnamespace::oid::int4, 1);
    posted := ROOM.apply(writes, bodies, false);
    COMMIT;
    IF posted IS NULL THEN
        RETURN;
    END IF;
    IF level <> '' THEN
        PERFORM ROOM.flush(level);
        COMMIT;
    END IF;
    IF bell <> '' THEN
        PERFORM ROOM.ring(bell);
    END IF;
END $$;

-- The floors that still hold: below them no letter of the mailbox is unread. One that became unread since is in the
-- changes. After a crash the numbers may have gone back.
CREATE OR REPLACE FUNCTION ROOM.sound_floors(home int, floors bigint[], as_of bigint, next bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    IF as_of >= next OR EXISTS (SELECT FROM ROOM.room r WHERE r.trimmed > as_of)
       OR EXISTS (SELECT FROM ROOM.changes c WHERE c.mailbox = home AND c.state = 1 AND c.number > as_of) THEN
        RETURN array_fill(0::bigint, ARRAY[8]);
    END IF;
    RETURN floors;
END $$;

-- Raise the floors of a mailbox, so that claims do not walk over the entries of letters that are claimed already: while
-- somebody holds an old snapshot, vacuum cannot remove them.
CREATE OR REPLACE FUNCTION ROOM.raise_floors(box text, INOUT floors bigint[], INOUT as_of bigint) LANGUAGE plpgsql AS $$
DECLARE
    home int := (SELECT m.id FROM ROOM.mailboxes m WHERE m.name = box AND m.folded = lower(box COLLATE "C"));
    next bigint;
BEGIN
    PERFORM ROOM.enter(0);
    next := ROOM.next_number();
    floors := ROOM.sound_floors(home, floors, as_of, next);
    FOR i IN 0 .. 7 LOOP
        floors[i + 1] := coalesce((SELECT d.number - 1 FROM ROOM.deliveries d WHERE d.mailbox = home AND d.state = 1
            AND d.seen = i / 4 AND d.rank = i % 4 AND d.number > floors[i + 1] ORDER BY d.number LIMIT 1), next - 1);
    END LOOP;
    as_of := next - 1;
END $$;

-- Claim letters of one mailbox, by priority and age, and return them; or a row with the number -1, where time must
-- change one first.
CREATE OR REPLACE FUNCTION ROOM.take(
    box text, steady double precision, now bigint, most bigint, many int, token text, holder text,
    until double precision, boot text, patience int, floors bigint[], as_of bigint, bell text
) RETURNS TABLE (
    number bigint, name text, kind smallint, state smallint, rank smallint, revision int, attempts int,
    delivered_at bigint, read_at bigint, acked_at bigint, dead_at bigint, due_at bigint, archived_at bigint,
    expires_at bigint, lease_token text, lease_holder text, lease_until double precision, lease_boot text, reason text,
    history text, arrived bigint, sum bigint, body bytea
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    home int;
    was_known boolean;
    next bigint;
    numbers bigint[];
    one bigint;
    late double precision := least(steady, extract(epoch FROM clock_timestamp())); -- the caller may have measured it wrong
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true), set_config('synchronous_commit', 'off', true),
            pg_advisory_xact_lock('ROOM'::regnamespace::oid::int4, 1); -- as `enter` does
    SELECT m.id, m.known INTO home, was_known FROM ROOM.mailboxes m
    WHERE m.folded = lower(box COLLATE "C") AND m.name = box;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM ROOM.deliveries d WHERE d.mailbox = home AND d.state = 2
        AND d.lease_until <= late
    UNION ALL SELECT FROM ROOM.deliveries d WHERE d.mailbox = home AND d.state = 0 AND d.due_at <= now
    UNION ALL SELECT FROM ROOM.deliveries d WHERE d.state < 2 AND d.expires_at IS NOT NULL AND d.expires_at <= now
        AND d.mailbox = home
    LIMIT 1;
    IF FOUND THEN
        number := -1;
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT 1 + greatest((SELECT max(l.number) FROM ROOM.letters l), (SELECT max(c.number) FROM ROOM.changes c))
    INTO next;
    IF as_of > 0 THEN
        floors := ROOM.sound_floors(home, floors, as_of, next);
    END IF;
    numbers := ARRAY(
        SELECT top.number FROM generate_series(0, 7) AS place CROSS JOIN LATERAL (
            SELECT d.number, d.rank FROM ROOM.deliveries d
            WHERE d.mailbox = home AND d.state = 1 AND d.seen = place / 4 AND d.rank = place % 4
            AND d.number > floors[place + 1] AND (d.expires_at IS NULL OR d.expires_at > now)
            AND (d.due_at IS NULL OR d.due_at <= now OR d.due_at > most AND d.attempts > 0)
            ORDER BY d.number LIMIT many) AS top
        ORDER BY top.rank, top.number LIMIT many);
    IF cardinality(numbers) = 0 THEN
        RETURN;
    END IF;
    -- One by one, by the primary key: of many at once the planner would walk the mailbox while its numbers are old.
    FOREACH one IN ARRAY numbers LOOP
        UPDATE ROOM.deliveries d SET state = 2, revision = d.revision + 1, due_at = NULL, lease_token = token,
            lease_holder = holder, lease_until = until, lease_boot = boot
        WHERE d.number = one AND d.mailbox = home;
        INSERT INTO ROOM.changes (number, what, letter, mailbox, state) VALUES (next, 'moved', one, home, 2);
        next := next + 1;
        RETURN QUERY SELECT d.number, box, d.kind, d.state, d.rank, d.revision, d.attempts, d.delivered_at, d.read_at,
            d.acked_at, d.dead_at, d.due_at, d.archived_at, d.expires_at, d.lease_token, d.lease_holder, d.lease_until,
            d.lease_boot, d.reason, d.history, d.arrived, l.sum, l.body
        FROM ROOM.deliveries d JOIN ROOM.letters l ON l.number = d.number WHERE d.number = one AND d.mailbox = home;
    END LOOP;
    IF NOT was_known THEN
        UPDATE ROOM.mailboxes m SET known = true WHERE m.id = home;
    END IF;
    PERFORM pg_notify('postroom ROOM', bell);
END $$;

-- Move what is left of a damaged letter out of the way; its number is never used again. Call it under the lock.
CREATE OR REPLACE FUNCTION ROOM.set_aside(damaged bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    gone text;
    change bigint := ROOM.next_number();
BEGIN
    INSERT INTO ROOM.quarantine SELECT l.number, l.id, l.body FROM ROOM.letters l WHERE l.number = damaged
    RETURNING id INTO gone;
    IF gone IS NOT NULL THEN -- else another process has done it
        DELETE FROM ROOM.letters l WHERE l.number = damaged;
        DELETE FROM ROOM.deliveries d WHERE d.number = damaged;
        DELETE FROM ROOM.words s WHERE s.number = damaged;
        INSERT INTO ROOM.changes (number, what, key) VALUES (change, 'forgot', gone);
    END IF;
END $$;

-- Drop all but the newest changes. Cursors older than those that are left need a resync.
CREATE OR REPLACE FUNCTION ROOM.trim_changes(keep bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
    dropped bigint := 0;
BEGIN
    SELECT c.number INTO last FROM ROOM.changes c ORDER BY c.number DESC LIMIT 1 OFFSET keep;
    IF FOUND THEN
        UPDATE ROOM.room SET trimmed = last;
        DELETE FROM ROOM.changes c WHERE c.number <= last;
        GET DIAGNOSTICS dropped = ROW_COUNT;
    END IF;
    RETURN dropped;
END $$;

-- Note that the server is alive, and say since when. A row that was there is kept.
CREATE OR REPLACE FUNCTION ROOM.wake() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    held text;
BEGIN
    INSERT INTO ROOM.alive (home, token) VALUES ('ROOM.alive'::regclass::oid, left(md5(gen_random_uuid()::text), 8))
    ON CONFLICT (only_one) DO UPDATE SET home = excluded.home, token = excluded.token
    WHERE alive.home <> excluded.home;
    SELECT a.token INTO held FROM ROOM.alive a;
    RETURN held;
END $$;

-- Enter the room with a clock of this boot. Another boot ends all leases and all cursors; a server has one for its life.
CREATE OR REPLACE FUNCTION ROOM.open_room(now_boot text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ROOM.wake() WHERE NOT EXISTS (SELECT FROM ROOM.alive WHERE home = tableoid);
    IF EXISTS (SELECT FROM ROOM.room r WHERE r.boot <> now_boot) THEN
        PERFORM ROOM.enter(0);
        UPDATE ROOM.deliveries SET lease_until = 0 WHERE state = 2;
        UPDATE ROOM.room r SET boot = now_boot, epoch = left(md5(gen_random_uuid()::text), 8);
    END IF;
END $$;

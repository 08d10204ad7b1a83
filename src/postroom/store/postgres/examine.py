"""The checks of `postroom doctor` for a room on a server: settings, load, standbys, and the room itself."""

from __future__ import annotations

from binascii import crc32
from typing import TYPE_CHECKING

from ...model.report import error, note, ok, verdict, warning
from .notification import LISTENERS
from .notification import NAME as LISTENER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...model.report import Finding, Progress
    from .store import PostgresStore

OLD = 60.0  # seconds that a transaction may be open before it holds back vacuum noticeably
BLOATED = 0.5  # of a table's rows are dead
FEW_ROWS = 10_000  # of which nobody notices the dead ones
SLICE = 5000  # letters checked between two reports of progress
MOST = 10  # ids that one finding names

_SERVER = """
SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('fsync'),
       current_setting('full_page_writes'), current_setting('data_checksums'),
       current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
       current_setting('max_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL)"""
_OLDEST = """
SELECT extract(epoch FROM clock_timestamp() - min(xact_start))::float8 FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()"""
_PREPARED = "SELECT count(*) FROM pg_prepared_xacts"
_DEAD = """
SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables
WHERE schemaname = ? ORDER BY n_dead_tup DESC"""
_STANDBYS = (
    "SELECT application_name, state, sync_state, extract(epoch FROM replay_lag)::float8 FROM pg_stat_replication"
)
_LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ?"
_LEFT = """
SELECT count(*) FROM ROOM.deliveries d WHERE NOT EXISTS (SELECT FROM ROOM.letters l WHERE l.number = d.number)"""
_UNDELIVERED = """
SELECT count(*) FROM ROOM.letters l WHERE NOT EXISTS (SELECT FROM ROOM.deliveries d WHERE d.number = l.number)"""
_BODIES = "SELECT number, id, sum, body FROM ROOM.letters WHERE number > ? ORDER BY number LIMIT ?"


def examine_room(store: PostgresStore, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
    """Run all checks, one after the other."""
    for done, check in enumerate(CHECKS, start=1):
        yield from check(store)
        progress(done, len(CHECKS) + 1)
    yield from _letters(store, repair=repair, full=full)
    progress(len(CHECKS) + 1, len(CHECKS) + 1)


def _server(store: PostgresStore) -> Iterator[Finding]:
    version, standby, fsync, pages, checksums, level, names, most, used = store.query(_SERVER)[0]
    yield ok("server", f"PostgreSQL {version}, schema {store.address.schema}")
    if standby:
        yield error("server", "this server is a standby", "name the primary in the address")
    if "off" in {fsync, pages} and store.level:
        yield error(
            "durability", "fsync or full_page_writes is off: a crash can lose or break all mail", "set both to on"
        )
    elif level == "off" and store.level:
        yield error("durability", "synchronous_commit is off: accepted mail could be lost", "set it to on")
    else:
        kept = f"and waits for {names}" if names and level != "local" else "on this server's disk alone"
        yield ok("durability", f"accepted mail is flushed (synchronous_commit {level}) {kept}")
    if checksums != "on":
        yield note(
            "durability",
            "the server keeps no checksums of its pages",
            "pg_checksums --enable, while it is stopped",
        )
    if used > 0.8 * most:
        yield warning(
            "connections", f"{used} of {most} connections are in use", "raise max_connections, or use PgBouncer"
        )
    if store.address.pooled:
        yield note("connections", "through a pooler: processes poll for new mail, and nothing is prepared")


_GRANT = "GRANT pg_read_all_stats TO this role, or run doctor as one that has it"


def _sees_all(store: PostgresStore) -> bool:
    """Return whether this role sees the sessions of other roles: else their times are NULL."""
    return bool(store.query("SELECT pg_has_role('pg_read_all_stats', 'USAGE')")[0][0])


def _transactions(store: PostgresStore) -> Iterator[Finding]:
    """Check for open transactions: vacuum removes nothing that they may still see, and claims grow slower."""
    oldest = store.query(_OLDEST)[0][0] or 0.0
    prepared = store.query(_PREPARED)[0][0]
    sees_all = _sees_all(store)
    if prepared:
        hint = "pg_prepared_xacts lists them; ROLLBACK PREPARED ends one"
        yield warning("transactions", f"{prepared} prepared transactions hold back vacuum", hint)
    if oldest > OLD:
        hint = "end it, or set idle_in_transaction_session_timeout; see pg_stat_activity by xact_start"
        yield warning("transactions", f"a transaction is open for {oldest:.0f} s and holds back vacuum", hint)
    elif not sees_all:
        yield note("transactions", "this role may not see those of others", _GRANT)
    elif not prepared:
        yield ok("transactions", "none is open for long")


def _bloat(store: PostgresStore) -> Iterator[Finding]:
    tables = store.query(_DEAD, [store.address.schema])
    bloated = [name for name, live, dead, _ in tables if dead > FEW_ROWS and dead > BLOATED * (live + dead)]
    fine = f"the room has {sum(size for *_, size in tables) / 1e6:,.1f} MB, and vacuum keeps up"
    hint = (
        f"VACUUM (ANALYZE) {store.address.schema}.{bloated[0]}; then let autovacuum run more often"
        if bloated
        else ""
    )
    yield verdict("bloat", f"most rows are dead in {', '.join(bloated)}" if bloated else "", fine, hint, warning)


def _standbys(store: PostgresStore) -> Iterator[Finding]:
    found = store.query(_STANDBYS)
    names = store.query("SELECT current_setting('synchronous_standby_names')")[0][0]
    if names and not _sees_all(store):
        yield note(
            "replication", f"commits wait for {names}, and this role may not see whether it is there", _GRANT
        )
    elif names and not any(sync in {"sync", "quorum"} for _, _, sync, _ in found):
        hint = "start it, or empty synchronous_standby_names: until then each durable commit waits"
        yield error("replication", f"no synchronous standby is connected, and commits wait for {names}", hint)
    elif found:
        shown = ", ".join(f"{name} ({state}, {sync})" for name, state, sync, _ in found)
        yield ok("replication", f"to {shown}")
    else:
        yield note("replication", "no standby is connected, or this role may not see them")


def _notification(store: PostgresStore) -> Iterator[Finding]:
    many = store.query(_LISTENERS, [LISTENER])[0][0]
    text = f"{many} connections listen for new mail"
    problem = f"{text}; further processes poll" if many >= LISTENERS else ""
    yield verdict("notification", problem, text, "run postroom serve once on each machine", note)


def _rows(store: PostgresStore) -> Iterator[Finding]:
    checked = ((_LEFT, "deliveries without their letter"), (_UNDELIVERED, "letters without a delivery"))
    wrong = [f"{many} {what}" for text, what in checked if (many := store.query(text)[0][0])]
    yield verdict("rows", ", ".join(wrong), "each delivery has its letter", "restore a backup")


CHECKS: tuple[Callable[[PostgresStore], Iterator[Finding]], ...] = (
    _server,
    _transactions,
    _bloat,
    _standbys,
    _notification,
    _rows,
)


def _letters(store: PostgresStore, *, repair: bool, full: bool) -> Iterator[Finding]:
    """Compare letters with their checksums: the newest, or with `full` all of them."""
    newest = store.query("SELECT coalesce(max(number), 0) FROM ROOM.letters")[0][0]
    damaged: dict[int, str] = {}
    after, seen = 0 if full else newest - SLICE, 0
    while rows := store.query(_BODIES, [after, SLICE]):
        damaged |= {number: id for number, id, sum, body in rows if crc32(body) != sum}
        seen, after = seen + len(rows), rows[-1][0]
    if not damaged:
        yield ok("letters", f"{seen} letters are as they were accepted")
        return
    text = f"{len(damaged)} letters are damaged: {', '.join([*damaged.values()][:MOST])}"
    if repair:
        store.get([*damaged.values()])  # reading one sets it aside
        yield error("letters", f"{text}; they are in quarantine now", repaired=True)
    else:
        yield error("letters", text, "repair=True sets them aside; restore them from a backup")

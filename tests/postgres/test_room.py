"""Rooms on a server: addresses, settings, versions, copies, notification, poolers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

import postroom
from postroom.cli.context import whole_address
from postroom.errors import BadStore, Missing, SchemaTooNew, StoreBusy, StoreFailing
from postroom.maintenance import copy_room, doctor
from postroom.model.query import LetterQuery
from postroom.model.report import Level
from postroom.store.address import local_place
from postroom.store.postgres.address import parse
from postroom.store.postgres.clock import ServerClock
from postroom.store.postgres.errors import translated
from postroom.store.postgres.store import PostgresStore
from tests.daemons import free_port, until
from tests.letters import letter, post, send
from tests.postgres.server import address_in, as_user, give, needs_server, programs, shared

SECRET = "s3cret"  # noqa: S105 - what must never be shown

pytestmark = needs_server


@pytest.fixture
def address(tmp_path: Path) -> str:
    return address_in(tmp_path)


@pytest.fixture
def store(address: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(address)) as opened:
        yield opened


@pytest.fixture
def link(address: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(address.partition("?")[0], autocommit=True) as opened:
        yield opened


# -- addresses


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://ann:{SECRET}@host/db",
        f"postgresql://ann@host/db?password={SECRET}",
        f"postgresql://ann:{SECRET}@a,b:1/db?schema=x",
    ],
)
def test_a_password_in_an_address_is_refused_and_never_shown(address: str) -> None:
    with pytest.raises(BadStore) as refused:
        postroom.open(address)
    assert SECRET not in f"{refused.value} {refused.value!r} {refused.value.hint}"
    assert "pgpass" in str(refused.value.hint)


@pytest.mark.parametrize("schema", ["Big", "a-b", "a;b", "pg_x", "public", "x" * 49, "1a", ""])
def test_only_plain_names_are_schemas(schema: str) -> None:
    with pytest.raises(BadStore):
        parse(f"postgresql://host/db?schema={schema}")


def test_an_address_keeps_its_parts_and_has_a_place_on_this_machine() -> None:
    text = "postgresql://ann@a:1,b:2/db?sslmode=require&schema=team"
    assert text == str(parse(text)) == whole_address(text)
    assert (
        "application_name" in parse(text).options
        and "connect_timeout" not in parse(f"{text}&connect_timeout=9").options
    )
    assert local_place(text) != local_place(text.replace("team", "other"))


def test_a_server_that_is_away_is_temporary() -> None:
    with pytest.raises(StoreFailing):
        postroom.open(f"postgresql://postroom@127.0.0.1:{free_port()}/postgres")


@pytest.mark.parametrize(
    "wrong",
    [
        ("/postgres?", "/nowhere?"),
        ("postgresql://postroom@", "postgresql://nobody@"),
        ("?schema", "?shema"),
        ("?schema", "?sslmode=bogus&schema"),
        ("?schema=", "?schema=user&application_name="),
    ],
)
def test_what_no_second_try_mends_is_a_bad_store(address: str, wrong: tuple[str, str]) -> None:
    assert wrong[0] in address
    with pytest.raises(BadStore) as refused:
        postroom.open(address.replace(*wrong))
    assert "restore" not in str(refused.value) and "try again" not in str(refused.value)


def test_a_pooler_that_the_address_does_not_name_is_named(link: psycopg.Connection[tuple[object, ...]]) -> None:
    with pytest.raises(BadStore, match="pooler=transaction"), translated():
        link.execute("EXECUTE prepared_in_another_session")


def test_looking_for_a_room_makes_none(
    tmp_path: Path, address: str, link: psycopg.Connection[tuple[object, ...]]
) -> None:
    found = doctor(address)
    with pytest.raises(Missing, match="there is no room"):
        copy_room(address, str(tmp_path / "copy.db"))

    assert [finding.check for finding in found.findings] == ["room"] and found.is_healthy
    schemas = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
    assert link.execute(schemas, [parse(address).schema]).fetchone() is None
    assert not (tmp_path / "copy.db").exists()


# -- what a room refuses to open


def test_a_newer_room_is_refused(store: PostgresStore) -> None:
    store.query("UPDATE ROOM.room SET version = 99 RETURNING 1")
    with pytest.raises(SchemaTooNew):
        PostgresStore(str(store.address))


def test_a_schema_of_another_program_is_refused(
    address: str, link: psycopg.Connection[tuple[object, ...]]
) -> None:
    schema = parse(address).schema
    link.execute(f"CREATE SCHEMA {schema}")
    link.execute(f"CREATE TABLE {schema}.theirs (n int)")
    with pytest.raises(BadStore, match="another program"):
        PostgresStore(address)


def test_a_room_of_the_first_version_is_brought_forward(
    store: PostgresStore, link: psycopg.Connection[tuple[object, ...]]
) -> None:
    """Then its functions are made anew, and the one that psql could not restore is gone."""
    schema = store.address.schema
    link.execute(f"CREATE FUNCTION {schema}.begin(text) RETURNS void LANGUAGE sql AS ''")
    link.execute(f"DROP FUNCTION {schema}.open_room(text)")
    link.execute(f"UPDATE {schema}.room SET version = 1")
    with closing(PostgresStore(str(store.address))) as again:
        send(again, "m-1", ["bob"])
    assert link.execute(f"SELECT version FROM {schema}.room").fetchone() == (2,)
    assert link.execute(f"SELECT to_regprocedure('{schema}.begin(text)')").fetchone() == (None,)


@pytest.mark.parametrize("how", ["psql", "pg_restore"])
def test_a_dump_of_a_room_is_restored(
    store: PostgresStore, link: psycopg.Connection[tuple[object, ...]], tmp_path: Path, how: str
) -> None:
    with postroom.open(str(store.address)) as room:
        sent = room.mailbox("ann").send("bob", "Keep this.")
    schema, folder = store.address.schema, programs()
    assert folder is not None
    url, dump = str(store.address).partition("?")[0], str(tmp_path / "dump")
    form = ["-Fc"] if how == "pg_restore" else []
    options = [f"--schema={schema}", "--no-unlogged-table-data", *form, "-f", dump, url]
    subprocess.run([str(folder / "pg_dump"), *options], check=True)
    store.close()
    link.execute(f"DROP SCHEMA {schema} CASCADE")
    restore = {
        "psql": ["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", dump, url],
        "pg_restore": ["pg_restore", "--exit-on-error", "-d", url, dump],
    }[how]
    subprocess.run([str(folder / restore[0]), *restore[1:]], check=True, stdout=subprocess.DEVNULL)
    with postroom.open(str(store.address)) as room:
        assert [one.id for one in room.mailbox("bob").check()] == [sent.id]


def test_half_a_backup_is_no_new_room(address: str, link: psycopg.Connection[tuple[object, ...]]) -> None:
    schema = parse(address).schema
    link.execute(f"CREATE SCHEMA {schema}")
    link.execute(f"CREATE FUNCTION {schema}.wake() RETURNS void LANGUAGE sql AS ''")
    with pytest.raises(BadStore, match="half of a backup"):
        PostgresStore(address)


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("synchronous_commit = off", "synchronous_commit"),
        ("default_transaction_isolation = serializable", "isolation"),
    ],
)
def test_settings_that_break_promises_are_refused(
    address: str, link: psycopg.Connection[tuple[object, ...]], setting: str, word: str
) -> None:
    link.execute("CREATE ROLE careless LOGIN SUPERUSER") if not _has_role(link, "careless") else None
    link.execute("ALTER ROLE careless RESET ALL")
    link.execute(f"ALTER ROLE careless SET {setting}")
    with pytest.raises(BadStore, match=word):
        PostgresStore(address.replace("postroom@", "careless@"))


def _has_role(link: psycopg.Connection[tuple[object, ...]], name: str) -> bool:
    return link.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone() is not None


def test_a_role_with_the_least_privileges_is_enough(
    address: str, link: psycopg.Connection[tuple[object, ...]]
) -> None:
    if not _has_role(link, "agents"):
        link.execute("CREATE ROLE agents LOGIN")
    link.execute(f"CREATE SCHEMA {parse(address).schema} AUTHORIZATION agents")
    with closing(PostgresStore(address.replace("postroom@", "agents@"), durable=False)) as store:
        send(store, "m1")
        findings = list(store.examine(repair=False, full=True, progress=lambda *_: None))
        assert all(finding.level < 3 for finding in findings)
        # What this role may not see is no all-clear.
        (found,) = [finding for finding in findings if finding.check == "transactions"]
        assert found.level is Level.NOTE and "may not see" in found.what


def test_two_that_open_a_new_room_at_once_make_one(address: str) -> None:
    program = "import sys, postroom; print(postroom.open(sys.argv[1]).core.store.cursor().store)"
    several = [
        subprocess.Popen([sys.executable, "-c", program, address], stdout=subprocess.PIPE) for _ in range(8)
    ]
    assert len({each.communicate(timeout=60)[0] for each in several}) == 1


def test_a_room_that_is_held_is_busy(store: PostgresStore, link: psycopg.Connection[tuple[object, ...]]) -> None:
    with closing(PostgresStore(str(store.address), busy_timeout=0.2)) as hurried, link.transaction():
        link.execute(store.database.sql("SELECT ROOM.enter(0)"))
        with pytest.raises(StoreBusy):
            hurried.commit([post(letter("m1"))])
        with pytest.raises(StoreBusy):
            hurried.commit(list)
    send(store, "m1")


# -- copies


def test_a_room_goes_into_a_file_and_back(store: PostgresStore, tmp_path: Path) -> None:
    room = postroom.open(str(store.address))
    for number in range(20):
        room.mailbox("ann").send(["bob", "cleo"], f"letter {number}", tags=["t"], key=str(number))
    work = room.mailbox("bob").claim(3)
    work.ack()
    file, back = str(tmp_path / "copy.db"), address_in(tmp_path / "back")
    assert copy_room(str(store.address), file).letters == 20
    assert copy_room(file, back).letters == 20
    with closing(PostgresStore(back)) as again:
        assert 20 == again.count(LetterQuery(), by="all")
        assert [one.message for one in again.letters(LetterQuery())] == [
            one.message for one in store.letters(LetterQuery())
        ]
    assert copy_room(str(store.address), back).letters == 0
    room.backup(tmp_path / "backup.db")
    with postroom.open(tmp_path / "backup.db") as backup:
        assert 17 == backup.mailbox("bob").counts()["total"]
        assert doctor(str(tmp_path / "backup.db")).is_healthy
    room.close()


def test_a_damaged_letter_is_set_aside_and_blocks_nobody(store: PostgresStore) -> None:
    send(store, "m1")
    send(store, "m2")
    store.query("UPDATE ROOM.letters SET body = 'x' WHERE id = 'm1' RETURNING 1")
    assert ["m2"] == [one.message.id for one in store.letters(LetterQuery())]
    assert ["m1"] == store.quarantined()


# -- notification and time


def test_another_process_is_woken(store: PostgresStore) -> None:
    program = (
        "import sys, postroom\n"
        "room = postroom.open(sys.argv[1])\n"
        "watch = room.core.store.watch(['bob'])\n"
        "print('ready', flush=True)\n"
        "print(watch.wait(30), watch.notified(), flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(store.address)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    send(store, "m1")
    assert "True" in process.communicate(timeout=60)[0]


def test_a_listener_that_was_cut_listens_again(
    store: PostgresStore, link: psycopg.Connection[tuple[object, ...]]
) -> None:
    with closing(PostgresStore(str(store.address))) as other:
        watch = other.watch(["bob"])
        link.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postroom-listener'"
        )
        # It is woken once it listens again: it may have missed something.
        until(lambda: watch.wait(0.2), 60)
        send(store, "m1")
        assert watch.wait(30)
        watch.close()


def test_leases_go_by_the_servers_time(store: PostgresStore) -> None:
    server = store.query("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0]
    now = store.clock.now()
    assert isinstance(store.clock, ServerClock)
    assert abs(now.steady - server) < 5 and abs(now.wall.timestamp() - server) < 5


# -- a pooler in between


@pytest.fixture
def pooler(tmp_path: Path) -> Iterator[int]:
    """A PgBouncer in transaction mode."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer here: apt-get install pgbouncer")
    folder, port = shared(os.getpid()).folder / "pooler", free_port()
    folder.mkdir(exist_ok=True)
    give(folder)
    file = folder / f"{port}.ini"
    file.write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={shared_port()} user=postroom\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = transaction\n"
        "default_pool_size = 2\nunix_socket_dir =\nignore_startup_parameters = extra_float_digits\n"
    )
    file.chmod(0o644)
    process = subprocess.Popen(
        [*as_user(), program, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def answers() -> bool:
        with suppress(psycopg.Error):
            psycopg.connect(f"postgresql://postroom@127.0.0.1:{port}/postgres").close()
            return True
        return False

    until(answers, 60)
    yield port
    process.kill()
    process.wait(30)


def test_a_pooler_in_transaction_mode_carries_all_but_bells(pooler: int, address: str) -> None:
    through = address.replace(f":{shared_port()}/", f":{pooler}/") + "&pooler=transaction"
    with postroom.open(through) as one, postroom.open(through) as other:
        watch = other.core.store.watch(["bob"])
        for number in range(30):
            one.mailbox("ann").send("bob", str(number))
        assert watch.wait(30)
        taken = other.mailbox("bob").claim(30)
        taken.ack()
        assert len(taken) == 30
        watch.close()


def shared_port() -> int:
    return shared(os.getpid()).port

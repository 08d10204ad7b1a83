"""Rooms on a real server while clients, sessions, the server, its disk and the network fail.

Processes at work write a ledger outside of the room. Afterwards each promise is compared with the room: what was
accepted is there once, what was acknowledged is done and was never handed out again, and whoever follows the
changes has met each letter. The twins have one bug planted, and must be found out.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import psycopg
import pytest

from postroom.errors import LeaseLost, PostroomError, Resync, StoreFailing
from postroom.letter import Work
from postroom.model.delivery import State
from postroom.model.query import LetterQuery, Query
from postroom.room import Room
from postroom.store.postgres.store import PostgresStore
from tests.conftest import LONG
from tests.daemons import until
from tests.faults.ledger import lines, lines_with
from tests.postgres import bugs
from tests.postgres.network import machine, needs_network
from tests.postgres.server import Server, give, needs_server
from tests.postgres.worker import CALM, DESK

pytestmark = [needs_server, pytest.mark.disk]

CLIENT_KILLS = 300 if LONG else 12
SERVER_KILLS = 30 if LONG else 3
PATIENCE = 60.0  # seconds
CUT = 30.0 if LONG else 7.0  # seconds without a network


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder on a disk that the server's user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-pg-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_server(place: Path) -> Iterator[Server]:
    """A server with the durability that it has by default."""
    (place / "one").mkdir()
    server = Server(place / "one").make().start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def common() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="postroom-pg-", dir="/var/tmp"))
    folder.chmod(0o755)
    server = Server(folder).make().start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server(common: Server) -> Server:
    """The server of all tests here, with an empty room."""
    common.wait()
    with common.connect() as link:
        link.execute("DROP SCHEMA IF EXISTS room CASCADE")
    return common


@contextmanager
def room_on(server: Server, bug: str = "") -> Iterator[PostgresStore]:
    with closing(PostgresStore(server.address("room"))) as store:
        if bug:
            bugs.plant(store, bug)
        yield store


class Crew:
    """Processes at work on one room, and their ledger."""

    def __init__(self, address: str, folder: Path, before: list[str] | None = None) -> None:
        self.address, self.folder, self._before = address, folder, before or []
        folder.mkdir(exist_ok=True)
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}

    def start(self, **roles: int) -> Crew:
        for role, many in roles.items():
            for number in range(many):
                self._start(role, f"{role}{number}")
        self.wait_for("ready", sum(roles.values()))
        return self

    def _start(self, role: str, who: str) -> None:
        command = [sys.executable, "-m", "tests.postgres.worker", self.address, str(self.folder), role, who]
        self._running[who] = (role, subprocess.Popen([*self._before, *command]))

    def wait_for(self, word: str, many: int) -> None:
        """Return once so many lines with this word are written."""

        def words() -> Counter[str]:
            return Counter(line[1] for line in lines(self.folder))

        until(lambda: words()[word] >= many, PATIENCE, words)

    def wait_for_more(self, word: str, many: int = 1) -> None:
        self.wait_for(word, len(lines_with(lines(self.folder), word)) + many)

    def kill_one(self) -> None:
        """Kill one process (-9) and start it again."""
        who = random.choice([*self._running])
        role, process = self._running[who]
        process.kill()
        process.wait(PATIENCE)
        self._start(role, who)

    def stop(self) -> None:
        for _, process in self._running.values():
            assert process.poll() is None, "a process at work ended by itself"
            process.kill()
            process.wait(PATIENCE)
        self._running = {}


def check(store: PostgresStore, folder: Path, *, followed: bool = False) -> dict[str, int]:
    """Compare the room with the ledger; return how much of each was counted."""
    written = lines(folder)
    there = store.letters(LetterQuery())
    sent = {about[0]: about[1] for about in lines_with(written, "sent")}
    keys = Counter(letter.message.key for letter in there)
    assert [] == [key for key in sent if keys[key] != 1], "accepted letters are lost or doubled"
    assert sent.items() <= {(letter.message.key, letter.message.id) for letter in there}
    assert max(keys.values(), default=1) == 1, "a letter was accepted twice"
    states = {found.message.id: found.delivery.state for found in store.find(Query(mailbox=DESK, order="age"))}
    acked = [id for (id,) in lines_with(written, "acked")]
    assert [] == [id for id in acked if states[id] is not State.DONE], "acknowledged letters are open"
    done: set[str] = set()
    for line in written:
        assert not (line[1] == "held" and line[2] in done), f"{line[2]} was handed out after it was acknowledged"
        if line[1] == "acked":
            done.add(line[2])
    if followed:
        (epoch,) = lines_with(written, "epoch")[-1]
        seen = {id for id, of in lines_with(written, "saw") if of == epoch}
        missed = [letter.message.id for letter in there if letter.message.id not in seen]
        assert [] == missed, f"a reader with a cursor missed {len(missed)} of {len(there)} letters"
    return {"sent": len(sent), "acked": len(acked)}


def catch_up(crew: Crew, store: PostgresStore) -> None:
    """Wait until the follower has read to the end, while nobody sends."""
    last = store.letters(LetterQuery(order="newest", limit=1))[0].message.id
    until(lambda: any(line[1:3] == ("saw", last) for line in lines(crew.folder)), PATIENCE)


# -- clients, sessions, servers


def test_killed_clients_lose_double_and_misread_nothing(server: Server, place: Path) -> None:
    crew = Crew(server.address("room"), place / "ledger").start(send=3, work=2)
    for _ in range(CLIENT_KILLS):
        crew.wait_for_more("sent", 3)
        crew.kill_one()
    crew.wait_for_more("acked", 5)
    crew.stop()
    with room_on(server) as store:
        counted = check(store, crew.folder)
    assert counted["sent"] > 3 * CLIENT_KILLS


def test_ended_sessions_and_a_killed_server_lose_nothing(server: Server, place: Path) -> None:
    crew = Crew(server.address("room"), place / "ledger").start(send=3, work=2, follow=1)
    for _ in range(SERVER_KILLS):
        crew.wait_for_more("sent", 20)
        with server.connect() as link:  # all at once, by whoever runs the server
            link.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        crew.wait_for_more("sent", 20)
        with server.connect() as link:  # one by the system: all others end with it, and the server recovers
            one = link.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'postroom' LIMIT 1"
            ).fetchone()
        if one is not None:
            os.kill(one[0], signal.SIGKILL)
        crew.wait_for_more("sent", 20)
        server.kill()
        server.start()
    crew.wait_for_more("sent", 20)
    crew.wait_for_more("acked", 5)
    with server.connect() as link:
        link.execute("SELECT pg_sleep(0.1)")
    crew.stop()
    with room_on(server) as store:
        check(store, crew.folder)


def test_letters_that_are_not_flushed_are_found_missing(server: Server, place: Path) -> None:
    """The twin: a server that never flushes loses letters when it is killed, and the ledger shows it."""
    with room_on(server, bug="never flushed"):
        pass
    server.hold_log()
    crew = Crew(server.address("room"), place / "ledger").start(send=2)
    crew.wait_for("sent", 40)
    server.kill()
    crew.stop()
    server.start()
    with room_on(server) as store, pytest.raises(AssertionError, match="lost"):
        check(store, crew.folder)


def test_a_promoted_standby_has_all_that_was_acknowledged(own_server: Server, place: Path) -> None:
    server = own_server
    (place / "two").mkdir()
    standby = server.standby(place / "two", "two")
    both = f"postgresql://postroom@127.0.0.1:{server.port},127.0.0.1:{standby.port}/postgres?schema=room"
    try:
        with closing(PostgresStore(both)) as store:
            before = store.cursor()
        crew = Crew(both, place / "ledger").start(send=3, work=1, follow=1)
        crew.wait_for("sent", 200 if not LONG else 5000)
        server.kill()
        standby.promote()
        with standby.connect() as link:
            link.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            link.execute("SELECT pg_reload_conf()")
        crew.wait_for_more("sent", 50)
        crew.stop()
        with closing(PostgresStore(both)) as store:
            assert check(store, crew.folder)["sent"] >= 250
            with pytest.raises(Resync):  # commits that nobody waited for may be lost with the old server
                store.changes(before, 10)
    finally:
        standby.stop()
        server.start()


# -- readers with a cursor


@pytest.mark.parametrize("bug", ["", "a plain sequence"], ids=["sound", "a plain sequence"])
def test_a_reader_with_a_cursor_skips_no_change(server: Server, place: Path, bug: str) -> None:
    with room_on(server, bug=bug) as store:
        crew = Crew(server.address("room"), place / "ledger").start(follow=1, send=6)
        crew.wait_for("sent", 20_000 if LONG else 2000 if bug else 400)
        for who, (role, process) in list(crew._running.items()):
            if role == "send":
                process.kill()
                process.wait(PATIENCE)
                del crew._running[who]
        if bug:
            time.sleep(1.0)
            crew.stop()
            with pytest.raises(AssertionError, match="missed"):
                check(store, crew.folder, followed=True)
        else:
            catch_up(crew, store)
            crew.stop()
            check(store, crew.folder, followed=True)


def test_a_foreign_transaction_holds_up_no_reader_and_no_writer(server: Server) -> None:
    with room_on(server) as store, server.connect() as link, server.connect() as old:
        room = Room(store, CALM)
        link.execute("BEGIN")
        link.execute("CREATE TABLE foreign_table (n int)")  # it has a transaction number, and stays open
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        start = store.cursor()
        for number in range(20):
            room.mailbox("ann").send("bob", str(number))
        assert 20 == sum(change.what == "posted" for change in store.changes(start, 100)[0])
        work = room.mailbox("bob").claim()
        assert work is not None
        work.ack()


EPOCH = "the epoch of the server's start"


@pytest.mark.parametrize("bug", ["", EPOCH], ids=["sound", EPOCH])
def test_a_crash_of_one_session_ends_all_cursors(server: Server, bug: str) -> None:
    """The server lives on, and starts over from its log: commits that nobody waited for may be lost."""
    with room_on(server, bug=bug) as store:
        if bug:
            store.query("SELECT ROOM.wake()")
            with server.connect() as link:
                link.execute("TRUNCATE room.alive")
        before = store.cursor()
        with server.connect() as other, server.connect() as link:
            os.kill(link.info.backend_pid, signal.SIGKILL)
            with pytest.raises(psycopg.Error):  # all sessions end  # noqa: PT012
                for _ in range(10_000):
                    other.execute("SELECT pg_sleep(0.01)")
        server.wait()

        def look() -> str:
            try:
                store.changes(before, 10)
            except Resync:
                return "resync"
            except PostroomError:  # it is not up again
                return ""
            return "nothing"

        found = until(look, PATIENCE)
    assert found == ("nothing" if bug else "resync")


# -- leases


UNPROVEN = "a move without the token"


@pytest.mark.parametrize("bug", ["", UNPROVEN], ids=["sound", UNPROVEN])
def test_a_claim_that_was_lost_with_the_server_is_no_claim(server: Server, bug: str) -> None:
    """A's claim is forgotten, B claims the same letter at the same revision: A must not acknowledge it."""
    with room_on(server, bug=bug) as store:
        first, second = lose_a_claim(server, Room(store, CALM))
        if bug:
            first.ack()
        else:
            with pytest.raises(LeaseLost):
                first.ack()
            second.ack()


def lose_a_claim(server: Server, room: Room) -> tuple[Work, Work]:
    """Claim a letter, kill the server before it wrote that, and claim the same letter again."""
    for _ in range(5):  # now and then the server writes out its log for another reason
        room.mailbox("ann").send("bob", "x")
        server.hold_log()
        first = room.mailbox("bob").claim(holder="A", lease=3600)
        assert first is not None
        server.kill()
        server.start()
        with suppress(PostroomError):
            room.core.store.cursor()  # its connection is cut
        second = room.mailbox("bob").claim(holder="B", lease=3600)
        if second is not None:
            assert second.id == first.id
            return first, second
    raise AssertionError("the server never lost the claim")


# -- settings that leak, notices that are missed


SET = "SET instead of SET LOCAL"


@pytest.mark.parametrize("bug", ["", SET], ids=["sound", SET])
def test_no_setting_of_ours_outlives_its_transaction(server: Server, bug: str) -> None:
    """Through PgBouncer the session is another program's next."""
    with room_on(server, bug=bug) as store:
        send_and_plan(store)
        levels = {store.query("SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')")[0]}
    assert levels == ({("off", "0")} if bug else {("on", "0")})


def send_and_plan(store: PostgresStore) -> None:
    room = Room(store, CALM)
    room.mailbox("ann").send("bob", "x")
    store.commit(list)


@pytest.mark.parametrize("bug", ["", "deaf"], ids=["sound", "the notice ignored"])
def test_a_standby_that_nobody_waited_for_makes_no_success(server: Server, bug: str) -> None:
    with room_on(server) as store:
        room = Room(store, CALM)
        room.mailbox("ann").send("bob", "first")
    with server.connect() as link, bugs.deaf_to_notices() if bug else nullcontext():
        link.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        link.execute("SELECT pg_reload_conf()")
        with room_on(server) as store:
            room = Room(store, CALM)
            with canceling(link), nullcontext() if bug else pytest.raises(StoreFailing):
                room.mailbox("ann").send("bob", "second", key="k")
        link.execute("ALTER SYSTEM RESET synchronous_standby_names")
        link.execute("SELECT pg_reload_conf()")
    with room_on(server) as store:
        again = Room(store, CALM).mailbox("ann").send("bob", "second", key="k")
        assert again.repeated


@contextmanager
def canceling(link: psycopg.Connection[object]) -> Iterator[None]:
    """Cancel each session that waits for a standby, until the block ends."""
    program = (
        "import psycopg, sys, time\n"
        "link = psycopg.connect(sys.argv[1], autocommit=True)\n"
        "while True:\n"
        "    link.execute(\"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'\")\n"
        "    time.sleep(0.05)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, link.info.dsn])
    try:
        yield
    finally:
        process.kill()
        process.wait(PATIENCE)


# -- the disk


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_refuses_and_loses_nothing(place: Path) -> None:
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=90m", "tmpfs", str(small)], check=True)
    try:
        (small / "one").mkdir()
        give(small)
        settings = ("max_wal_size=32MB", "min_wal_size=32MB", "wal_recycle=off")
        server = Server(small / "one", *settings).make().start()
        try:
            with room_on(server) as store:
                box = Room(store, CALM).mailbox("ann")
                box.send("bob", "x", key="first")
                ballast = small / "ballast"
                sent = 0
                with pytest.raises(PostroomError) as refused:  # noqa: PT012
                    while True:
                        with ballast.open("ab") as file, suppress(OSError):
                            file.write(b"x" * 2**20)
                            file.flush()
                        box.send("bob", os.urandom(100_000).hex(), key=f"k{sent}")
                        sent += 1
                assert refused.value.temporary, refused.value
                ballast.unlink()

                def again() -> bool:
                    try:
                        box.send("bob", "after", key="after")
                    except PostroomError:
                        if server.has_ended:
                            server.start()  # without space for its log it stops by itself
                        return False
                    return True

                until(again, PATIENCE)
                keys = {letter.message.key for letter in store.letters(LetterQuery())}
                assert {"first", "after", *(f"k{number}" for number in range(sent))} <= keys
        finally:
            server.stop()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


# -- the network


@needs_network
@pytest.mark.parametrize("what", ["all", "answers"])
def test_a_cut_network_loses_and_doubles_nothing(place: Path, what: str) -> None:
    (place / "one").mkdir()
    server = Server(place / "one", listen="*").make().start()
    try:
        with machine() as far:
            with room_on(server):
                pass
            address = f"postgresql://postroom@{far.here}:{server.port}/postgres?schema=room"
            crew = Crew(address, place / "ledger", far.command).start(send=3, work=1)
            crew.wait_for("sent", 50)
            refused = len(lines_with(lines(crew.folder), "refused"))
            far.cut() if what == "all" else far.cut_answers()
            time.sleep(CUT)  # it is the time that is tested: what waits longer than its patience gives up
            crew.wait_for("refused", refused + 1)
            far.mend()
            crew.wait_for_more("sent", 20)
            crew.stop()
        with room_on(server) as store:
            check(store, crew.folder)
    finally:
        server.stop()

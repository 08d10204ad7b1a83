"""One quick look from outside: is there surely nothing unread in a mailbox?

For programs that ask at every prompt. It opens the file for reading only, loads neither model nor store, and knows
two answers: surely nothing, or "ask the store". What time has done but nobody has written down yet, a name spelt
otherwise, another boot, another schema, anything odd: ask the store.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from ...environment import boot_id
from .lock import number_in

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw


APPLICATION = 0x506F7374  # as in schema.py, which is too heavy to ask
PATIENCE = 200  # milliseconds for somebody who opens the room at the same moment
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SCHEMA = os.path.join(os.path.dirname(__file__), "schema")

ONE_MAILBOX = frozenset({"user", "ceo", "human"})  # as in model/names.py: three names, and the store knows whose

# True: the same boot; nobody else has or had a name like this; nothing unread; and time did nothing to it.
# And all that was confirmed is there.
_QUESTION = """
WITH box AS (SELECT id, name FROM mailboxes WHERE folded = ?1)
SELECT (SELECT boot FROM room) = ?3
   AND max(coalesce((SELECT max(number) FROM letters), 0), coalesce((SELECT max(number) FROM changes), 0)) >= ?6
   AND NOT EXISTS (SELECT 1 FROM box WHERE name <> ?2)
   AND NOT EXISTS (SELECT 1 FROM aliases WHERE folded = ?1)
   AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 1 AND seen = 0 AND mailbox IN (SELECT id FROM box))
   AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 2 AND lease_until <= ?4
                   AND mailbox IN (SELECT id FROM box))
   AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 0 AND due_at <= ?5 AND mailbox IN (SELECT id FROM box))
   AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state < 2 AND expires_at IS NOT NULL AND expires_at <= ?5
                   AND mailbox IN (SELECT id FROM box))
"""

_OTHERS = """
SELECT name FROM mailboxes WHERE NOT EXISTS (SELECT 1 FROM mailboxes WHERE folded = ?1)
   AND abs(length(folded) - length(?1)) <= 2 LIMIT 1000
"""


def is_surely_empty(path: str, mailbox: str, others: list[str] | None = None) -> bool:
    """Has this mailbox nothing unread, and would asking the store change nothing? False: it may or may not.
    Where nobody is called so, the names there are are put into `others`.
    """
    return has_nothing(path, mailbox, others, APPLICATION, lambda _: True)


def has_nothing(
    path: str,
    mailbox: str,
    others: list[str] | None,
    application: int,
    is_current: Callable[[apsw.Connection], bool],
) -> bool:
    """The same of any file with these tables, if it `is_current`: an index only tells what stands elsewhere."""
    path = os.path.realpath(path)
    try:
        if mailbox.lower() in ONE_MAILBOX or not _is_a_room_in_use(path):
            return False
        version = (application, sum(name.endswith(".sql") for name in os.listdir(_SCHEMA)))
        moment = (boot_id(), time.clock_gettime(_STEADY), time.time_ns() // 1000, number_in(f"{path}.lock"))
    except OSError:
        return False
    return _ask(path, version, is_current, (mailbox.lower(), mailbox, *moment), others)


def _is_a_room_in_use(path: str) -> bool:
    """A file of ours with one name, and its log beside it: else the store has checks to make, or things to do."""
    found = os.stat(path)
    log = os.stat(f"{path}-wal")
    os.stat(f"{path}-shm")
    if not found.st_size:  # of an emptied file SQLite deletes the log
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == log.st_nlink == 1


def _ask(
    path: str,
    version: tuple[int, int],
    is_current: Callable[[apsw.Connection], bool],
    values: tuple[str, str, str, float, int, int],
    others: list[str] | None,
) -> bool:
    import apsw  # noqa: PLC0415 - the weight of the whole look; not before it is needed

    try:
        database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW)
        database.set_busy_timeout(PATIENCE)
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        database.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        if (database.pragma("application_id"), database.pragma("user_version")) != version:
            return False
        if not is_current(database) or not database.execute(_QUESTION, values).get:
            return False
        if others is not None:
            others += [name for (name,) in database.execute(_OTHERS, values[:1])]
    except apsw.Error:
        return False
    return True

"""A folder of mailboxes, and the manager over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.nanobot import MailboxManager


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mailboxes"


@pytest.fixture
def manager(root: Path) -> Iterator[MailboxManager]:
    with MailboxManager(root) as manager:
        yield manager

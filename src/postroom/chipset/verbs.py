"""The design's own verbs for mail, over the state folder they are given. `Mailboxes` says what each one does."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from .chipset import STATE, Chipset
from .mail import A_DAY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from .mail import Mail, Mailboxes


def send_mail(message: Mapping[str, Any], *, state: str | os.PathLike[str] = STATE) -> Mail:
    return _at(state).send_mail(message)


def check_mail(agent: str, *, state: str | os.PathLike[str] = STATE) -> list[Mail]:
    return _at(state).check_mail(agent)


def unread(agent: str, *, state: str | os.PathLike[str] = STATE) -> list[Mail]:
    return _at(state).unread(agent)


def mark_read(agent: str, filename: str, *, state: str | os.PathLike[str] = STATE) -> None:
    _at(state).mark_read(agent, filename)


def archive_old_mail(
    agent: str, older_than: float | timedelta = A_DAY, *, state: str | os.PathLike[str] = STATE
) -> int:
    return _at(state).archive_old_mail(agent, older_than)


def _at(state: str | os.PathLike[str]) -> Mailboxes:
    return _open(os.path.realpath(state)).mail


@cache
def _open(state: str) -> Chipset:
    """Opened once in a process."""
    return Chipset(state)

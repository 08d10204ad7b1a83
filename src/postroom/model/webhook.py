"""A webhook: whom to call when mail waits, and the secret by which they know that it was us."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from .message import Priority

WAY = "webhook:"  # and its id: the way in which it rings
# What must never be shown, exported or logged.
SECRETS = frozenset({"secret", "former_secret"})


class Webhook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One address, for one mailbox."""

    id: str
    url: str
    mailbox: str
    secret: str  # whsec_…; kept as it is, for who signs needs it
    former_secret: str = ""  # the one before, which signs too until:
    former_until: datetime | None = None
    min_priority: Priority = Priority.NORMAL  # mail below it does not ring
    allow_private: bool = False  # may it be on this machine, or in a private network?
    created_at: datetime
    off_at: datetime | None = None  # since then nothing is called there
    note: str = ""  # and why

    @property
    def way(self) -> str:
        return f"{WAY}{self.id}"

    @property
    def is_on(self) -> bool:
        return self.off_at is None

    def secrets(self, now: datetime) -> list[str]:
        """Those that sign in this moment, the newest first."""
        is_former = self.former_until is not None and now < self.former_until
        return [self.secret, self.former_secret] if is_former else [self.secret]

    def __repr__(self) -> str:
        return f"Webhook(id={self.id!r})"  # a log must not tell a secret


class OpenCall(Struct, frozen=True):
    """A call that nobody answered yet, or that failed and is made again: under the same id, for these letters."""

    id: str
    letters: tuple[str, ...]


def shown(webhook: Webhook) -> dict[str, Any]:
    """All that may be shown of a webhook, by name."""
    plain: dict[str, Any] = {
        name: getattr(webhook, name) for name in webhook.__struct_fields__ if name not in SECRETS
    }
    return plain | {"min_priority": webhook.min_priority.name.lower()}

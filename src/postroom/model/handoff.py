"""The structured context of a handoff: what was done, where it stands, what comes next."""

from __future__ import annotations

from msgspec import Struct


class Handoff(Struct, frozen=True, kw_only=True):
    """Work that changes hands."""

    work_completed: str
    files_modified: tuple[str, ...] = ()
    files_created: tuple[str, ...] = ()
    current_state: str = ""
    state_file: str | None = None
    next_steps: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    related_escalations: tuple[str, ...] = ()
    job_id: str | None = None
    notes: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """Every file it names, once."""
        named = (*self.files_modified, *self.files_created, *((self.state_file,) if self.state_file else ()))
        return tuple(dict.fromkeys(named))

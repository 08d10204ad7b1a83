"""Work that changes hands: what was done, where it stands, what comes next. Plain values, no room."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class HandoffContext:
    """All that the next agent has to know."""

    work_completed: str
    files_modified: list[str] = field(default_factory=list)
    files_created: list[str] = field(default_factory=list)
    current_state: str = ""
    state_file: str | None = None  # where the state is written down
    next_steps: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    related_escalations: list[str] = field(default_factory=list)
    job_id: str | None = None
    notes: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The context of a letter."""
        return asdict(self)

    @property
    def files(self) -> list[str]:
        """What a letter attaches."""
        return [*self.files_modified, *self.files_created]


def handoff_body(from_agent: str, to_agent: str, context: HandoffContext, additional_notes: str = "") -> str:
    """The handoff for a model to read. What the design leaves to the context alone stands here, too."""
    lines = [f"Work handoff from {from_agent} to {to_agent}."]
    lines += _line("Work Completed", context.work_completed)
    lines += _line("Current State", context.current_state)
    lines += _line("State File", context.state_file)
    lines += _list("Next Steps", context.next_steps)
    lines += _list("Blockers", context.blockers)
    lines += _list("Dependencies", context.dependencies)
    lines += _list("Related Escalations", context.related_escalations)
    for notes in (context.notes, additional_notes):
        lines += ["", "**Notes:**", notes] if notes else []
    return "\n".join(lines)


def _line(title: str, words: str | None) -> list[str]:
    return ["", f"**{title}:** {words}"] if words else []


def _list(title: str, items: list[str]) -> list[str]:
    return ["", f"**{title}:**", *(f"- {item}" for item in items)] if items else []

"""The commands that put Postroom into agent hosts, and take it out. What would change is shown, then asked."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import Refused
from ..hosts.install import planning, receipts, writing
from ..hosts.install.beside import beside
from ..hosts.install.layouts import Order, layout_of
from ..hosts.install.standing import has_rules, standing
from ..mcp.sdk import SdkMissing, need_sdk
from ..model.names import check_agent
from ..whereabouts import receipts_folder
from . import setup_views as views
from .answers import Answer, sayable
from .exits import NOTHING, OK, CannotCreate, Usage
from .notes import note
from .places import program, whole_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..hosts.install.planning import Change, Plan
    from .context import Context


def run_install_host(context: Context) -> Iterator[Answer]:
    with _refusals():
        errand = Errand(context)
        if "check" in context.values:
            yield errand.checked()
            return
        plan = errand.to_install(rules=errand.wants_rules())
        if plan.changes and "dry_run" not in context.values:
            yield from errand.shown(plan.changes)
            if not _is_agreed(context, "Write this?"):
                yield errand.answer("declined", code=NOTHING)
                return
            if with_rules := errand.offer(plan):
                yield from errand.shown([change for change in with_rules.changes if change not in plan.changes])
                plan = with_rules if _is_agreed(context, "Add these rules, too?") else plan
        yield errand.carried_out(plan, "written", "unchanged")


def run_uninstall_host(context: Context) -> Iterator[Answer]:
    with _refusals():
        errand = Errand(context)
        plan = errand.to_uninstall()
        if plan.changes and "dry_run" not in context.values:
            yield from errand.shown(plan.changes)
            if not _is_agreed(context, "Take this out?"):
                yield errand.answer("declined", code=NOTHING)
                return
        yield errand.carried_out(plan, "removed", "absent")


class Errand:
    """One call: the host, its files, and what earlier calls left behind."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._order = _order(context)
        self._layout = layout_of(self._order)
        self._receipt = receipts.path_of(receipts_folder(), self._order.host, self._layout.place)
        self._held = receipts.load(self._receipt)

    def to_install(self, *, rules: bool) -> Plan:
        return planning.to_install(self._layout, self._held, rules=rules)

    def to_uninstall(self) -> Plan:
        return planning.to_uninstall(self._layout, self._held)

    def wants_rules(self) -> bool:
        """Were they asked for? Those that are there already are kept up to date."""
        if {"rules", "no_rules"} <= self._context.values.keys():
            raise Usage("with them or without?", field="--rules")
        return "rules" in self._context.values or has_rules(self._layout)

    def offer(self, plan: Plan) -> Plan | None:
        """The same with the rules, where they may be offered and added. Their file keeps nobody from the rest."""
        if {"rules", "no_rules", "yes"} & self._context.values.keys():
            return None
        try:
            found = self.to_install(rules=True)
        except Refused as refused:
            note(self._context.call, f"no rules text is offered: {refused}")
            return None
        return found if found.changes != plan.changes else None

    def shown(self, changes: Sequence[Change]) -> Iterator[Answer]:
        """What would be done, for people who are asked next. Programs get it with the answer."""
        if not self._context.screen.json:
            view = partial(views.brief, self._own, " ".join(self._order.program))
            yield Answer(self._context.name, self._data("", changes), view)

    def carried_out(self, plan: Plan, done: str, idle: str) -> Answer:
        if not plan.changes:
            return self.answer(idle)
        if "dry_run" in self._context.values:
            view = partial(views.diff, self._own)
            return Answer(self._context.name, self._data("shown", plan.changes), view)
        writing.carry_out(plan, self._layout.root, self._receipt)
        return self.answer(done, plan.changes)

    def checked(self) -> Answer:
        """Is all of it there, and is what it starts?"""
        found = standing(self._layout)
        programs = [_on_path(path) for path in found.programs]
        is_whole = found.is_all and all(one["there"] for one in programs)
        outcome = "in place" if is_whole else "incomplete" if found.is_any else "absent"
        if self._layout.obstacle:  # another plugin of ours
            outcome, programs = ("twice", programs) if found.is_any else ("elsewhere", [_on_path("postroom")])
            is_whole = not found.is_any and all(one["there"] for one in programs)
        return self.answer(outcome, code=OK if is_whole else NOTHING, programs=programs)

    def answer(self, outcome: str, changes: Sequence[Change] = (), *, code: int = OK, **more: Any) -> Answer:
        view = partial(views.told, self._own)
        return Answer(self._context.name, self._data(outcome, changes) | more, view, code=code)

    @property
    def _own(self) -> str:
        return sayable(self._layout.own or "")

    def _data(self, outcome: str, changes: Sequence[Change]) -> dict[str, Any]:
        is_install = self._context.name.startswith("install ")
        data = {
            "host": self._order.host,
            "place": sayable(self._layout.place),
            "outcome": outcome,
            "changes": [views.plain_change(change) for change in changes],
            "next": self._next_steps(outcome) if is_install else [],
        }
        return data | ({"programs": []} if is_install else {})

    def _next_steps(self, outcome: str) -> list[str]:
        steps = views.next_steps(self._order, outcome)
        is_heard = outcome == "written" and not self._context.screen.json  # before it was asked
        if outcome not in {"declined", "absent"} and not is_heard:
            steps += map(sayable, beside(self._order, self._layout, receipts_folder()))
        if outcome in {"elsewhere", "twice"} and self._layout.obstacle:
            path, says, to_do = self._layout.obstacle
            steps += [f"{path} {says}{f'; {to_do}' if outcome == 'twice' else ''}."]
        is_unsaid = "yes" in self._context.values and not {"rules", "no_rules"} & self._context.values.keys()
        if outcome == "written" and is_unsaid and not has_rules(self._layout):
            steps += ["The rules text was not added: --rules adds it."]
        return steps


def _on_path(program: str) -> dict[str, Any]:
    return {"path": sayable(program), "there": shutil.which(program) is not None}


def _order(context: Context) -> Order:
    if "as" in context.values:
        raise Usage("has no place here", field="--as", hint="--agent says who the sessions are")
    options: list[str] = []
    if agent := context.get("agent"):
        check_agent(agent, "--agent")
        options += ["--as", agent]
    if "room" in context.values:
        options += ["--room", whole_address(context.settings.store)]
    project = os.getcwd() if "project" in context.values else None  # noqa: PTH109 - as text
    host = context.name.partition(" ")[2]
    return Order(host, tuple(program()), tuple(options), project, with_server=_can_serve())


def _can_serve() -> bool:
    try:
        need_sdk()
    except SdkMissing:
        return False
    return True


def _is_agreed(context: Context, question: str) -> bool:
    """Ask. Where nobody can answer, --yes must have been said beforehand."""
    if "yes" in context.values:
        return True
    if context.screen.json or sys.stdin is None or not sys.stdin.isatty():
        hint = "--yes writes without asking, --dry-run only shows"
        raise Usage("is needed where nobody can be asked", field="--yes", hint=hint)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


@contextmanager
def _refusals() -> Iterator[None]:
    """What a file is refused for, or fails with, is told as what cannot be made."""
    try:
        yield
    except Refused as refused:
        raise CannotCreate(refused.message, field=refused.field, hint=refused.hint) from None
    except OSError as broken:
        raise CannotCreate(f"{broken.strerror}; nothing was written", field=broken.filename) from None

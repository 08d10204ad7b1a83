"""The commands about templates: letters written beforehand, which `send --template` fills in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..wire.plain import plain_template
from .answers import Answer
from .escape import body_lines, one_line
from .tables import facts, hint, table
from .text import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answers import Screen
    from .context import Context


def run_templates(context: Context) -> Answer:
    found = context.room.templates()
    return Answer(context.name, {"templates": [plain_template(template) for template in found]}, _list)


def run_templates_show(context: Context) -> Answer:
    return Answer(context.name, {"template": plain_template(context.room.template(context.get("name")))}, _whole)


def run_templates_save(context: Context) -> Answer:
    said = context.given("subject", "kind", "priority", tags="tag")
    body = text_of(context)
    said |= {} if body is None else {"body": body}
    saved = context.act_in_room(lambda room: room.save_template(context.get("name"), **said))
    return Answer(context.name, {"template": plain_template(saved)}, _whole)


def run_templates_delete(context: Context) -> Answer:
    name = context.get("name")
    context.room.delete_template(name)
    return Answer(context.name, {"deleted": name}, lambda _screen, data: f"Deleted {one_line(data['deleted'])}.\n")


def _list(screen: Screen, data: Mapping[str, Any]) -> str:
    if not data["templates"]:
        return "No templates yet.\n" + hint(screen, "templates save NAME --body 'Please look at {file}.'")
    rows = [(t["name"], t["kind"], t["priority"], ", ".join(t["places"]), t["subject"]) for t in data["templates"]]
    return table(screen, ("NAME", "KIND", "PRIORITY", "PLACES", "SUBJECT"), rows)


def _whole(screen: Screen, data: Mapping[str, Any]) -> str:
    template = data["template"]
    pairs = [
        ("Template", template["name"]),
        ("Subject", template["subject"]),
        ("Kind", template["kind"]),
        ("Priority", template["priority"]),
        ("Tags", ", ".join(template["tags"])),
        ("Places", ", ".join(template["places"])),
    ]
    return facts(screen, pairs) + "".join(f"{line}\n" for line in body_lines(template["body"]))

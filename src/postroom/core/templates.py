"""Templates: recurring letters that are kept by name in the room and filled in when they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import Invalid, Missing, TooLarge
from ..model.message import Template, filled, places_in
from ..model.names import check_kind, check_name
from ..model.record import TEMPLATE
from ..model.values import check_line, check_text
from ..store.protocol import record_keys
from .compose import LONGEST_SUBJECT, LetterFields, check_priority, check_texts
from .core import change_record, find_value, values_of
from .messages import Receipt, send_one
from .verb import PriorityWord, Verb, verb

if TYPE_CHECKING:
    from .authorize import Principal
    from .core import Core


@verb("templates", list[Template], under="templates", action="template", writes=False)
class ListTemplates(Verb, kw_only=True):
    """Return all templates, sorted by name."""

    def run(self, core: Core, _principal: Principal) -> list[Template]:
        return list(values_of(core, TEMPLATE, Template).values())


@verb("template", Template, under="template", action="template", writes=False)
class GetTemplate(Verb, kw_only=True):
    """Return one template."""

    name: Annotated[str, "its name"]

    def run(self, core: Core, _principal: Principal) -> Template:
        return _find(core, self.name)


@verb("save_template", Template, under="template", action="templates")
class SaveTemplate(Verb, kw_only=True):
    """Keep a recurring letter under a name; it replaces an older one."""

    name: Annotated[str, "its name"]
    body: Annotated[str | None, "with {places}"] = None
    subject: Annotated[str | None, "with {places}"] = None
    kind: Annotated[str | None, "an open word"] = None
    priority: Annotated[PriorityWord | None, "low, normal, high or urgent"] = None
    tags: Annotated[list[Any] | None, "labels"] = None

    def run(self, core: Core, _principal: Principal) -> Template:
        fields = {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}
        template = check_template(core, self.name, fields)
        return change_record(core, TEMPLATE, template.name, Template, lambda _: template)


@verb("delete_template", str, under="deleted", action="templates")
class DeleteTemplate(Verb, kw_only=True):
    """Delete a template."""

    name: Annotated[str, "its name"]

    def run(self, core: Core, _principal: Principal) -> str:
        change_record(core, TEMPLATE, _find(core, self.name).name, Template, lambda _: None)
        return self.name


@verb("send_template", Receipt, action="send")
class SendTemplate(LetterFields, kw_only=True):
    """Send a letter made from a template. Fields that are given win over those of the template."""

    to: Annotated[Any, "a name, or a list of names"]
    name: Annotated[str, "the template"]
    values: Annotated[dict[str, Any] | None, "a value for each of its places"] = None

    def run(self, core: Core, principal: Principal) -> Receipt:
        template = _find(core, self.name)
        values = _check_values(template, self.values)
        usual = {
            "subject": filled(template.subject, values),
            "kind": template.kind,
            "priority": template.priority,
            "tags": [filled(tag, values) for tag in template.tags],
        }
        return send_one(core, principal, self.drafted(usual, to=self.to, body=filled(template.body, values)))


def _find(core: Core, name: Any) -> Template:
    """Return the template of this name, or raise Missing with the names that exist."""
    found = find_value(core, TEMPLATE, check_name(name, "template"), Template)
    if found is None:
        names = record_keys(core.store, TEMPLATE)
        hint = f"there are {', '.join(names[:10])}" if names else "there are none yet; save one first"
        raise Missing(f"there is no template {name!r}", field="template", hint=hint)
    return found


_FIELDS = tuple(field for field in Template.__struct_fields__ if field != "name")


def check_template(core: Core, name: Any, values: Mapping[str, Any]) -> Template:
    """Return a checked template of these fields."""
    template = Template(
        name=check_name(name, "template"),  # short, and safe on a command line
        body=check_text(values.get("body", ""), "body"),
        subject=check_line(values.get("subject", ""), "subject", LONGEST_SUBJECT),
        kind=check_kind(values.get("kind", "message"), "kind"),
        priority=check_priority(values.get("priority", "normal")),
        tags=check_texts(values.get("tags", ()), "tags", 128),
    )
    for field in ("subject", "body"):
        places_in(getattr(template, field), field)
    for tag in template.tags:
        places_in(tag, "tags")
    # Refused when it is saved, not at every letter that is made from it.
    if len(template.body.encode()) > core.limits.max_message_bytes:
        raise TooLarge(f"is larger than a letter may be ({core.limits.max_message_bytes} bytes)", field="body")
    return template


def _check_values(template: Template, values: Any) -> dict[str, str]:
    """Return one text for each place of the template, or raise Invalid if one is missing or too many."""
    mapping = {} if values is None else values
    if not isinstance(mapping, Mapping):
        raise Invalid(f"must be an object, not {type(values).__name__}", field="values")
    places = set(template.places)
    for name in mapping:
        if name not in places:
            raise Invalid(
                f"{template.name!r} has no place {name!a}"[:200],
                field="values",
                hint=f"its places: {', '.join(sorted(places)) or 'none'}",
            )
    missing = sorted(places - set(mapping))
    if missing:
        raise Invalid(
            "is missing", field=f"values.{missing[0]}", hint=f"{template.name!r} needs {', '.join(missing)}"
        )
    return {name: _as_text(value, f"values.{name}") for name, value in mapping.items()}


def _as_text(value: Any, field: str) -> str:
    # Numbers are written as they are; `True` in a sentence is more likely a mistake.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value}"
    return check_text(value, field)

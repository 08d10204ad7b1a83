"""Templates: recurring letters, kept by name in the room, filled in when they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import Invalid, Missing, TooLarge
from ..model.codec import convert, to_plain
from ..model.names import check_kind, check_name
from ..model.record import TEMPLATE
from ..model.template import Template, filled, places_in
from ..model.values import check_label, check_line, check_text
from .authorize import authorize
from .compose import LONGEST_SUBJECT, MOST_TAGS, Draft, check_priority
from .given import listed
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.base import Write
    from .authorize import Principal
    from .office import Office


def save(office: Office, caller: Principal, name: str, /, **said: Any) -> Template:
    """Keep a template under its name, in the place of an older one."""
    authorize(caller, "templates")
    template = check_template(office, name, said)

    def plan() -> Sequence[Write]:
        value = to_plain(template)
        return [put_record(TEMPLATE, template.name, value, find_record(office, TEMPLATE, template.name))]

    office.store.commit(plan)
    return template


def get(office: Office, caller: Principal, name: str) -> Template:
    authorize(caller, "template")
    held = find_record(office, TEMPLATE, check_name(name, "template"))
    if held is None:
        raise Missing(f"there is no template {name!r}", field="template", hint=_known(office))
    return convert(held.value, Template)


def everyone(office: Office, caller: Principal) -> list[Template]:
    """All templates, by name."""
    authorize(caller, "template")
    return [convert(record.value, Template) for record in office.store.records(TEMPLATE)]


def delete(office: Office, caller: Principal, name: str) -> None:
    authorize(caller, "templates")

    def plan() -> Sequence[Write]:
        get(office, caller, name)
        return [put_record(TEMPLATE, name, None, find_record(office, TEMPLATE, name))]

    office.store.commit(plan)


def template_draft(
    office: Office, caller: Principal, mailbox: str, to: Any, name: str, values: Any, /, **more: Any
) -> Draft:
    """A letter made from a template. What is said by name beats what the template says."""
    authorize(caller, "send", mailbox)
    template = get(office, caller, name)
    given = _check_values(template, values)
    kept = {
        "subject": filled(template.subject, given),
        "kind": template.kind,
        "priority": template.priority,
        "tags": tuple(filled(tag, given) for tag in template.tags),
    }
    return Draft(sender=mailbox, to=to, body=filled(template.body, given), **(kept | more))


def check_template(office: Office, name: Any, said: Mapping[str, Any]) -> Template:
    """A checked template. Only known fields are taken."""
    fields = {field for field in Template.__struct_fields__ if field != "name"}
    unknown = set(said) - fields
    if unknown:
        raise Invalid("a template has no such field", field=min(unknown), hint=", ".join(sorted(fields)))
    template = Template(
        name=check_name(name, "template"),  # short, and safe on a command line
        body=check_text(said.get("body", ""), "body"),
        subject=check_line(said.get("subject", ""), "subject", LONGEST_SUBJECT),
        kind=check_kind(said.get("kind", "message"), "kind"),
        priority=check_priority(said.get("priority", "normal")),
        tags=_tags(said.get("tags", ())),
    )
    for field in ("subject", "body"):
        places_in(getattr(template, field), field)
    for tag in template.tags:
        places_in(tag, "tags")
    if len(template.body.encode()) > office.limits.max_message_bytes:
        raise TooLarge(f"is larger than a letter may be ({office.limits.max_message_bytes} bytes)", field="body")
    return template


def _tags(value: Any) -> tuple[str, ...]:
    tags = listed(value, "tags")
    if len(tags) > MOST_TAGS:
        raise TooLarge(f"{len(tags)} of them, the limit is {MOST_TAGS}", field="tags")
    return tuple(dict.fromkeys(check_label(tag, "tags") for tag in tags))


def _check_values(template: Template, values: Any) -> dict[str, str]:
    """One value for each place, no more and no less."""
    given = {} if values is None else values
    if not isinstance(given, Mapping):
        raise Invalid(f"must be an object, not {type(values).__name__}", field="values")
    places = set(template.places)
    for name in given:
        if name not in places:
            hint = f"its places: {', '.join(sorted(places)) or 'none'}"
            raise Invalid(f"{template.name!r} has no place {name!a}"[:200], field="values", hint=hint)
    missing = sorted(places - set(given))
    if missing:
        hint = f"{template.name!r} needs {', '.join(missing)}"
        raise Invalid("is missing", field=f"values.{missing[0]}", hint=hint)
    return {name: _as_text(value, f"values.{name}") for name, value in given.items()}


def _as_text(value: Any, field: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value}"
    return check_text(value, field)


def _known(office: Office) -> str:
    names = office.store.keys(TEMPLATE)
    return f"there are {', '.join(names[:10])}" if names else "there are none yet; save one first"

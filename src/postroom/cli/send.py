"""The commands that send letters, take them back, block senders, and keep templates of letters."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import SystemClock
from ..core.compose import read_file_part
from ..errors import Invalid, PostroomError
from ..formats.plain import plain_message, plain_receipt, plain_template
from ..mailbox import draft
from ..model import message as model_message
from ..model.message import file, reference
from ..model.values import read_json
from . import views
from .answer import Answer
from .context import body_text, read_source
from .errors import NoInput, Usage
from .output import body_lines, facts, hint, one_line, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.compose import Draft
    from ..core.messages import Receipt
    from ..model.message import Part
    from .answer import Screen
    from .context import Context


_SAME = ("cc", "bcc", "subject", "priority", "kind", "at", "expires", "data", "scope", "thread_tag", "task",
         "callback", "context", "metadata", "extra", "key", "in_reply_to")  # fmt: skip
_RENAMED = {"id": "letter_id", "tags": "tag", "attachments": "attachment", "conversation_id": "conversation"}
_HANDOFF = {
    "work_completed": "done", "current_state": "state", "next_steps": "next", "blockers": "blocker",
    "files_modified": "modified", "files_created": "created", "dependencies": "dependency",
    "related_escalations": "escalation", "state_file": "state_file", "job_id": "job", "notes": "notes",
}  # fmt: skip


def run_send(context: Context) -> Answer:
    if "drafts" in context.values:
        if context.values.keys() & {"to", "body", "edit", "template"}:
            raise Usage("come with their own recipients and text", field="--drafts")
        drafts = drafts_of(context)
        sent = context.act(lambda box: box.send_many(drafts))
        return Answer(context.name, {"receipts": [plain_receipt(receipt) for receipt in sent]}, views.receipts)
    to = context.get("to")
    if not to and "in_reply_to" not in context.values:
        raise Usage("nobody is named", field="TO", hint="an agent's name")
    if "template" in context.values:
        return _send_template(context, to)
    if "fill" in context.values:
        raise Usage("fills the places of a template", field="--fill", hint="say --template NAME too")
    body, fields = content_of(context), fields_of(context)
    return answer(context, context.act(lambda box: box.send(to, body, **fields)))


def _send_template(context: Context, to: list[str]) -> Answer:
    """Send a letter with the text of a template; other fields may be set as in any letter."""
    for name in ("body", "edit", "file", "reference", "part"):
        if name in context.values:
            raise Usage("has no place in a letter from a template", field=f"--{name}")
    filled = context.get("fill", ())
    values = dict(filled)
    if len(values) < len(filled):
        raise Usage("fills a place twice", field="--fill")
    fields = fields_of(context)
    try:
        receipt = context.act(lambda box: box.send_template(to, context.get("template"), values, **fields))
    except Invalid as refused:
        whole, _, place = (refused.field or "").partition(".")
        if whole == "values" and place not in {"", *values}:
            refused.hint = f"say --fill {place}=…; {refused.hint}"
        raise
    return answer(context, receipt)


def run_reply(context: Context) -> Answer:
    id, to_all = context.get("id"), bool(context.get("to_all"))
    body, fields = content_of(context), fields_of(context)
    box = context.mailbox
    if not context.get("done"):
        return answer(context, box.reply(id, body, to_all=to_all, **fields))
    return answer(context, box.read(id).ack_and_reply(body, to_all=to_all, **fields))


def run_forward(context: Context) -> Answer:
    body, fields = content_of(context, optional=True), fields_of(context)
    return answer(context, context.mailbox.forward(context.get("id"), context.get("to"), body, **fields))


def run_broadcast(context: Context) -> Answer:
    scope = context.values.pop("scope")
    body, fields = content_of(context), fields_of(context)
    exclude = context.get("exclude", ())
    return answer(context, context.act(lambda box: box.broadcast(scope, body, exclude=exclude, **fields)))


def run_handoff(context: Context) -> Answer:
    fields = context.passed_options(**_HANDOFF)
    if "from_file" in context.values:
        if fields:
            raise Usage("is either a file or options", field="--from-file")
        text = read_source(context, context.get("from_file"), "--from-file")
        fields = _read_object(context, text, "--from-file")
    elif "done" not in context.values:
        raise Usage("is missing", field="--done", hint="what was done; or the whole handoff by --from-file")
    try:
        handoff = msgspec.convert(fields, model_message.Handoff)
    except msgspec.ValidationError as broken:
        raise Invalid(str(broken), field="handoff", hint="say at least what was done: --done") from None
    unknown = fields.keys() - set(model_message.Handoff.__struct_fields__)
    if unknown:
        raise Invalid(
            "a handoff has no such field",
            field=min(unknown),
            hint=", ".join(model_message.Handoff.__struct_fields__),
        )
    to, letter_fields = context.get("to"), fields_of(context)
    return answer(context, context.act(lambda box: box.handoff(to, handoff, **letter_fields)))


def fields_of(context: Context) -> dict[str, Any]:
    """Return the fields of the letter that options set, under the library's names."""
    if "task" in context.values and "kind" not in context.values:
        hint = "postroom tasks complete, fail, … do; a letter that only carries the note says --kind too"
        raise Usage("a plain letter moves no task", field="--task", hint=hint)
    at = context.get("at")
    again = context.values.keys() & {"key", "letter_id"}  # a retry of the same letter, whose time may be past
    if isinstance(at, datetime) and at < SystemClock().now().wall and not again:
        raise Invalid(f"{at.isoformat()} is past", field="--at", hint="leave it out to send at once")
    return context.passed_options(*_SAME, **_RENAMED)


def content_of(context: Context, *, optional: bool = False) -> Any:
    """Return the body of the letter: its text, and the parts it encloses."""
    enclosed = [
        *(_enclosed(context, path) for path in context.get("file", ())),
        *(reference(uri) for uri in context.get("reference", ())),
        *context.get("part", ()),
    ]
    text = body_text(context, optional=optional or bool(enclosed) or "data" in context.values)
    if not enclosed:
        return text
    return enclosed if text is None else [text, *enclosed]


def _enclosed(context: Context, path: str) -> Part:
    """Read a file to enclose. Errors name the option --file."""
    settings = context.settings
    try:
        return read_file_part(file(path), settings.file_root, settings.max_message_bytes, "--file")
    except PostroomError as refused:
        refused.field = "--file"
        if type(refused) is Invalid:
            raise NoInput(refused.message, field="--file") from None
        raise


def drafts_of(context: Context) -> list[Draft]:
    """Return the letters of a file of JSON lines."""
    lines = read_source(context, context.get("drafts"), "--drafts").splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found.append(_draft(context, line, f"--drafts line {number}"))
    if not found:
        raise Invalid("holds no letter", field="--drafts")
    return found


def _draft(context: Context, line: str, field: str) -> Draft:
    fields = _read_object(context, line, field)
    if "to" not in fields:
        raise Invalid("nobody is named", field=f"{field}: to")
    try:
        return draft(fields.pop("to"), fields.pop("body", None), **fields)
    except Invalid as wrong:
        wrong.field = f"{field}: {wrong.field}"
        raise


def _read_object(context: Context, text: str, field: str) -> dict[str, Any]:
    limits = context.settings
    value = read_json(text, field, depth=limits.max_depth, largest=limits.max_message_bytes)
    if not isinstance(value, dict):
        raise Invalid("is not an object", field=field)
    return value


def answer(context: Context, receipt: Receipt) -> Answer:
    data: Mapping[str, Any] = plain_receipt(receipt)
    view = views.sent if context.name in {"send", "forward"} else views.receipt
    return Answer(context.name, data, partial(view, due=_due(context)))


def _due(context: Context) -> datetime | None:
    """Return when the letter arrives, if --at sets it."""
    at: datetime | float | None = context.get("at")
    return at if isinstance(at, datetime | None) else context.screen.now + timedelta(seconds=at)


# -- unsend, block


def run_unsend(context: Context) -> Answer:
    back = [context.mailbox.unsend(id) for id in dict.fromkeys(context.get("id"))]
    return Answer(context.name, {"letters": [plain_message(message) for message in back]}, _taken_back)


def run_block(context: Context) -> Answer:
    if "name" not in context.values:
        context.looks = True
        return Answer(context.name, {"blocked": context.mailbox.blocked()}, _blocked)
    return Answer(context.name, {"blocked": context.act(lambda box: box.block(context.get("name")))}, _blocked)


def run_unblock(context: Context) -> Answer:
    return Answer(context.name, {"blocked": context.mailbox.unblock(context.get("name"))}, _blocked)


def _taken_back(_screen: Screen, data: Mapping[str, Any]) -> str:
    return "".join(f"Took back {letter['id']}.\n" for letter in data["letters"])


def _blocked(_screen: Screen, data: Mapping[str, Any]) -> str:
    if not data["blocked"]:
        return "Nobody is blocked.\n"
    return f"Blocked: {', '.join(map(one_line, data['blocked']))}.\n"


# -- templates: letters written beforehand, which `send --template` fills in


def run_templates(context: Context) -> Answer:
    found = context.room.templates()
    return Answer(context.name, {"templates": [plain_template(template) for template in found]}, _list)


def run_templates_show(context: Context) -> Answer:
    return Answer(context.name, {"template": plain_template(context.room.template(context.get("name")))}, _whole)


def run_templates_save(context: Context) -> Answer:
    fields = context.passed_options("subject", "kind", "priority", tags="tag")
    body = body_text(context)
    fields |= {} if body is None else {"body": body}
    saved = context.act_in_room(lambda room: room.save_template(context.get("name"), **fields))
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

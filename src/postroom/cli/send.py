"""The commands that send letters, take them back, block senders, and keep templates of letters."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import SystemClock
from ..core.compose import read_file_part
from ..errors import Invalid, PostroomError
from ..formats.plain import plain
from ..mailbox import draft
from ..model import message as model_message
from ..model.message import file, reference
from ..model.values import read_json
from . import views
from .answer import Answer
from .command import Option, command, declare
from .context import body_text, read_source
from .errors import NOTHING, NoInput, Usage
from .options import BODY, FIELDS, ID, LIMIT, TEXT
from .output import body_lines, listing, one_line, record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.compose import Draft
    from ..core.messages import Receipt
    from ..model.message import Part
    from .answer import Screen
    from .context import Context


_TEXT = (
    "The text comes from --body, else from standard input when that is not a terminal, else from $VISUAL or $EDITOR."
    " An empty text from the editor sends nothing. When the command returns, the letter is on stable storage; an"
    " error that is temporary shows the key with which to send the same letter again."
)
NAME = Option("NAME", help="the template's name", required=True, complete="templates", field="name")


_SAME = ("cc", "bcc", "subject", "priority", "kind", "at", "expires", "data", "scope", "thread_tag", "task",
         "callback", "context", "metadata", "extra", "key", "in_reply_to")  # fmt: skip
_RENAMED = {"id": "letter_id", "tags": "tag", "attachments": "attachment", "conversation_id": "conversation"}
_HANDOFF = {
    "work_completed": "done", "current_state": "state", "next_steps": "next", "blockers": "blocker",
    "files_modified": "modified", "files_created": "created", "dependencies": "dependency",
    "related_escalations": "escalation", "state_file": "state_file", "job_id": "job", "notes": "notes",
}  # fmt: skip


@command(
    "send",
    Option(
        "TO",
        help="who gets it, several with commas: an agent's name; NAME@SYSTEM, or JSON with agent, system, scope;"
        " broadcast:SCOPE; or any:CAPABILITY, the least busy agent with that capability",
        complete="agents",
    ),
    Option(
        "TEXT", help="the text; where an option gives the text, further recipients", many=True, complete="agents"
    ),
    *BODY,
    *FIELDS,
    Option("--in-reply-to", help="the letter this one answers or follows", metavar="ID", complete="letters"),
    Option(
        "--template",
        help="the text, kind, priority and tags of this template",
        metavar="NAME",
        complete="templates",
    ),
    Option("--fill", help="what stands in a place of the template", kind="pair", metavar="PLACE=TEXT", many=True),
    Option(
        "--drafts",
        help="send many letters in one commit: a file of JSON lines, each with to, body and fields;"
        " - is standard input",
        metavar="PATH",
        complete="files",
    ),
    about=_TEXT,
    examples=(
        ('postroom send researcher "Which sort is stable?" --as coder', "a plain letter"),
        ("postroom send coder,tester Friday. --as planner -s Release -p urgent --at 10m", "to two, later"),
        ("echo 'Please look at sort.py' | postroom send reviewer --as coder --key look-1", "the text from a pipe"),
        (
            "postroom send coder --as planner --body 'Sort it.' --data '{\"rows\": 10}' --json",
            "with data, for a program",
        ),
        (
            'postroom send any:python --as planner --body "Sort it."',
            "to the least busy agent that knows Python; the receipt names it",
        ),
        ("postroom send coder --as planner --template review --fill file=sort.py", "from a template"),
    ),
    json="id thread repeated unknown routed carried letter receipts",
)
def run_send(context: Context) -> Answer:
    if "drafts" in context.values:
        if context.values.keys() & {"to", "body", "edit", "template"}:
            raise Usage("come with their own recipients and text", field="--drafts")
        drafts = drafts_of(context)
        sent = context.act(lambda box: box.send_many(drafts))
        return Answer(context.name, {"receipts": [plain(receipt) for receipt in sent]}, views.receipts)
    to = _recipients(context)
    if not to and "in_reply_to" not in context.values:
        raise Usage("nobody is named", field="TO", hint="an agent's name")
    if "template" in context.values:
        return _send_template(context, to)
    if "fill" in context.values:
        raise Usage("fills the places of a template", field="--fill", hint="say --template NAME too")
    body, fields = content_of(context), fields_of(context)
    return answer(context, context.act(lambda box: box.send(to, body, **fields)))


def _recipients(context: Context) -> list[Any] | None:
    """Return the recipients: the first argument, parted at commas. The second is the text.

    Where the text comes from an option, every argument names recipients.
    """
    if "to" not in context.values:
        return None
    words = [context.values["to"], *context.get("text", ())]
    if len(words) > 1 and not {"body", "edit", "template"} & context.values.keys():
        if len(words) > 2:
            raise Usage("the text is one argument", field="TEXT", hint="quote it: postroom send TO,TO 'the text'")
        context.values["body"] = words.pop()
    return [to for word in words for to in _parted(context, word)]


def _parted(context: Context, word: str) -> list[Any]:
    """Return the recipients in a word: JSON is one, and the commas after any: belong to it."""
    if word.startswith("{"):
        return [
            read_json(word, "TO", depth=context.settings.max_depth, largest=context.settings.max_message_bytes)
        ]
    found = []
    while "," in word and not word.startswith("any:"):
        first, _, word = word.partition(",")
        found.append(first)
    return [*found, word]


def _send_template(context: Context, to: list[str] | None) -> Answer:
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
        receipt = context.act(lambda box: box.send_template(to or (), context.get("template"), values, **fields))
    except Invalid as refused:
        whole, _, place = (refused.field or "").partition(".")
        if whole == "values" and place not in {"", *values}:
            refused.hint = f"say --fill {place}=…; {refused.hint}"
        raise
    return answer(context, receipt)


@command(
    "reply",
    ID,
    TEXT,
    *BODY,
    Option("--to-all", "--all", help="to everyone the letter went to, not to its sender alone", kind="flag"),
    Option(
        "--done",
        help="you are done with the letter: acknowledge it in the same commit, unless somebody has claimed it",
        kind="flag",
    ),
    *FIELDS,
    about="Keeps thread, scope, priority and conversation, and puts Re: before the subject once. " + _TEXT,
    examples=(
        ('postroom reply m-1 "Merge sort." --as researcher', "answer a letter"),
        ('postroom reply m-1 --as researcher --done --body "Merge sort."', "and be done with it"),
    ),
    json="id thread repeated unknown routed carried letter",
    looks=True,
)
def run_reply(context: Context) -> Answer:
    id, to_all = context.get("id"), bool(context.get("to_all"))
    body, fields = content_of(context), fields_of(context)
    box = context.mailbox
    if not context.get("done"):
        return answer(context, box.reply(id, body, to_all=to_all, **fields))
    return answer(context, box.read(id).ack_and_reply(body, to_all=to_all, **fields))


@command(
    "ask",
    Option("TO", help="an agent's name, or any:CAPABILITY", required=True, complete="agents", field="to"),
    TEXT,
    *BODY,
    verb="asking.Ask",
    places=("to",),
    without=("body",),
    about="The answer is the first letter that replies to the request; it is acknowledged. Where none comes in time, the"
    " exit code is 1, and the same command with the --key that is printed waits on without sending again. If the"
    " request comes back, the error says why.",
    examples=(
        (
            'postroom ask researcher "Which sort is stable?" --as coder --timeout 1s || true',
            "and wait for the answer",
        ),
    ),
)
def run_ask(context: Context) -> Answer:
    answer = context.answer(_answered, body=body_text(context))
    answer.code = 0 if answer.letters else NOTHING
    return answer


def _answered(screen: Screen, data: Mapping[str, Any]) -> str:
    if data["letter"] is not None:
        return views.letter(screen, data)
    return f"No answer yet to {data['id']}. The same command with --key {data['key']} waits on.\n"


@command(
    "forward",
    ID,
    Option("TO", help="an agent's name", kind="address", many=True, required=True, complete="agents"),
    *BODY,
    *FIELDS,
    about="A letter is relayed a limited number of times, and never back along its way. Without --body, nothing is"
    " added to it.",
    examples=(
        ("postroom forward m-1 reviewer --as researcher --body 'Yours, I think.'", "with a word of your own"),
    ),
    json="id thread repeated unknown routed carried letter",
    looks=True,
)
def run_forward(context: Context) -> Answer:
    body, fields = content_of(context, optional=True), fields_of(context)
    return answer(context, context.mailbox.forward(context.get("id"), context.get("to"), body, **fields))


@command(
    "broadcast",
    Option("SCOPE", help="a team; agents join one when they register", required=True, complete="scopes"),
    TEXT,
    *BODY,
    Option("--exclude", help="leave this agent out", many=True, metavar="NAME", complete="agents"),
    *(option for option in FIELDS if option.name != "scope"),
    about=_TEXT,
    examples=(('postroom broadcast sorting --as planner --body "The release is on Friday."', "tell the team"),),
    json="id thread repeated unknown routed carried letter",
)
def run_broadcast(context: Context) -> Answer:
    scope = context.values.pop("scope")
    body, fields = content_of(context), fields_of(context)
    exclude = context.get("exclude", ())
    return answer(context, context.act(lambda box: box.broadcast(scope, body, exclude=exclude, **fields)))


@command(
    "handoff",
    Option("TO", help="an agent's name", kind="address", many=True, required=True, complete="agents"),
    Option("--done", help="what you have done so far, as a text", metavar="TEXT"),
    Option("--state", help="where it stands", metavar="TEXT"),
    Option("--next", help="a next step", many=True, metavar="TEXT"),
    Option("--blocker", help="what stands in the way", many=True, metavar="TEXT"),
    Option("--modified", help="a file that was changed", many=True, metavar="PATH", complete="files"),
    Option("--created", help="a file that was made", many=True, metavar="PATH", complete="files"),
    Option("--dependency", help="what it depends on", many=True, metavar="TEXT"),
    Option("--escalation", help="the id of a related escalation", many=True, metavar="ID"),
    Option("--state-file", help="a file that holds the state", metavar="PATH", complete="files"),
    Option("--job", help="the id of the job", metavar="ID"),
    Option("--notes", help="anything else", metavar="TEXT"),
    Option(
        "--from-file",
        help="the whole handoff as a JSON object; - is standard input",
        metavar="PATH",
        complete="files",
    ),
    *(option for option in FIELDS if option.name not in {"context", "file", "reference", "part", "data"}),
    about="The recipient gets a letter of kind handoff: a text to read, and the same as an object in its context."
    " Say at least --done, or give a file.",
    examples=(
        (
            "postroom handoff reviewer --as coder --done 'Merge sort written.' --next 'Review sort.py' --created sort.py",
            "by options",
        ),
        (
            'echo \'{"work_completed": "All tests pass."}\' | postroom handoff reviewer --as coder --from-file -',
            "from a program",
        ),
    ),
    json="id thread repeated unknown routed carried letter",
)
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
    data: Mapping[str, Any] = plain(receipt)
    view = views.sent if context.name in {"send", "forward"} else views.receipt
    return Answer(context.name, data, partial(view, due=_due(context)))


def _due(context: Context) -> datetime | None:
    """Return when the letter arrives, if --at sets it."""
    at: datetime | float | None = context.get("at")
    return at if isinstance(at, datetime | None) else context.screen.now + timedelta(seconds=at)


# -- unsend, block


@command(
    "unsend",
    Option("ID", help="the letter's id, or how it begins", many=True, required=True, complete="sent"),
    about="A letter is taken back from all its recipients or none, as long as nobody has claimed or settled it. A"
    " recipient who had not read it never sees it. Several letters are taken back one after the other, until"
    " the first that cannot be. Taking one back twice is no error.",
    examples=(("postroom unsend m-2 --as coder", "a slip of the pen"),),
    json="letters",
    looks=True,
)
def run_unsend(context: Context) -> Answer:
    back = [context.mailbox.unsend(id) for id in dict.fromkeys(context.get("id"))]
    return Answer(context.name, {"letters": [plain(message) for message in back]}, _taken_back)


@command(
    "block",
    Option("NAME", help="whose mail; it may be nobody yet", complete="agents", field="name"),
    verb="agents.Block",
    places=("name",),
    about="Its sends to you fail with exit 77. You need not be registered.",
    examples=(
        ("postroom block spammer --as coder", "no more of it"),
        ("postroom block --as coder", "who is refused"),
    ),
)
def run_block(context: Context) -> Answer:
    if "name" in context.values:
        return context.answer(_blocked)
    from ..core.agents import ListBlocked  # noqa: PLC0415 - only here

    context.looks = True
    return context.answer_with(context.perform(ListBlocked), _blocked)


def _taken_back(_screen: Screen, data: Mapping[str, Any]) -> str:
    return "".join(f"Took back {letter['id']}.\n" for letter in data["letters"])


def _blocked(_screen: Screen, data: Mapping[str, Any]) -> str:
    if not data["blocked"]:
        return "Nobody is blocked.\n"
    return f"Blocked: {', '.join(map(one_line, data['blocked']))}.\n"


declare(
    "unblock",
    Option("NAME", help="whose mail", required=True, complete="agents", field="name"),
    verb="agents.Unblock",
    places=("name",),
    view=_blocked,
    examples=(("postroom unblock spammer --as coder", "all is forgiven"),),
    looks=True,
)


# -- templates: letters written beforehand, which `send --template` fills in


_template = record(
    {
        "Template": "name",
        "Subject": "subject",
        "Kind": "kind",
        "Priority": "priority",
        "Tags": "tags",
        "Places": "places",
    },
    "template",
)


def _whole(screen: Screen, data: Mapping[str, Any]) -> str:
    return _template(screen, data) + "".join(f"{line}\n" for line in body_lines(data["template"]["body"]))


declare(
    "templates",
    LIMIT,
    verb="templates.ListTemplates",
    view=listing(
        "templates",
        {"NAME": "name", "KIND": "kind", "PRIORITY": "priority", "PLACES": "places", "SUBJECT": "subject"},
        "No templates yet.",
        first="templates save NAME --body 'Please look at {file}.'",
    ),
    about="Templates belong to the room. postroom send --template NAME --fill PLACE=TEXT sends one. Needs no --as.",
    examples=(("postroom templates", "all of them"),),
    looks=True,
)
declare(
    "templates show",
    NAME,
    verb="templates.GetTemplate",
    places=("name",),
    view=_whole,
    examples=(("postroom templates show review", "one of them"),),
    looks=True,
)


@command(
    "templates save",
    NAME,
    TEXT,
    *BODY,
    verb="templates.SaveTemplate",
    places=("name",),
    without=("body",),
    about="Text, subject and tags may hold places such as {file}; a brace itself is written {{ or }}. Replaces a"
    " template of the same name. The text comes from --body, else from standard input when that is not a terminal,"
    " else from $VISUAL or $EDITOR.",
    examples=(
        (
            "postroom templates save review -s 'Review {file}' --body 'Please look at {file}.' -k request",
            "a new one",
        ),
    ),
)
def run_templates_save(context: Context) -> Answer:
    body = body_text(context)
    return context.answer(_whole, **({} if body is None else {"body": body}))


declare(
    "templates delete",
    NAME,
    verb="templates.DeleteTemplate",
    places=("name",),
    view=lambda _screen, data: f"Deleted {one_line(data['deleted'])}.\n",
    examples=(("postroom templates delete review", "gone; letters made from it stay"),),
    looks=True,
)

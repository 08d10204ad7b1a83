"""The commands that send letters, take them back, block senders, and keep templates of letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.inbox import Messages
from ..errors import Invalid
from ..model.values import read_json
from . import views
from .command import BODY, CONTENT, EXTRA, ID, LIMIT, Option, command
from .errors import Usage
from .output import body_lines, listing, record, says
from .text import check_fields, content, read_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.compose import Draft
    from .answer import Answer, Screen
    from .context import Context


_TEXT = (
    "The text comes from --body, else from standard input when that is not a terminal, else from $VISUAL or $EDITOR."
    " An empty text from the editor sends nothing. When the command returns, the letter is on stable storage; an"
    " error that is temporary shows the key with which to send the same letter again."
)
NAME = Option("NAME", name="name", help="the template's name", required=True, complete="templates")
_TO = Option("TO", name="to", help="an agent's name", kind="address", many=True, required=True, complete="agents")


@command(
    "send",
    Option(
        "TO",
        help="the recipients, with commas between them: an agent's name; NAME@SYSTEM, or JSON with agent, system, scope;"
        " broadcast:SCOPE; or any:CAPABILITY, the least busy agent with that capability",
        complete="agents",
    ),
    Option(
        "TEXT", help="the text; where an option gives the text, further recipients", many=True, complete="agents"
    ),
    *CONTENT[1:],
    Option(
        "--template",
        help="the text, kind, priority and tags of this template",
        metavar="NAME",
        complete="templates",
    ),
    Option(
        "--fill",
        help="what stands in a place of the template",
        kind="pair",
        metavar="PLACE=TEXT",
        many=True,
        needs="template",
    ),
    Option(
        "--drafts",
        help="send many letters in one commit: a file of JSON lines, each with to, body and fields;"
        " - is standard input",
        metavar="PATH",
        complete="files",
        against=("to", "body", "edit", "template"),
    ),
    verb="messages.Send",
    view=views.sent,
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
        from ..core.messages import SendMany  # noqa: PLC0415 - rare

        return context.answer_with(context.perform(SendMany, drafts=drafts_of(context)), views.receipts)
    to = _recipients(context)
    if not to and "in_reply_to" not in context.values:
        raise Usage("no agent is named", field="TO", hint="postroom send NAME TEXT")
    if "template" in context.values:
        return _send_template(context, to or [])
    return context.answer(to=to)


def _recipients(context: Context) -> list[Any] | None:
    """Return the recipients: the first argument, parted at commas. The second is the text.

    Where the text comes from an option, every argument names recipients.
    """
    if "to" not in context.values:
        return None
    words = [context.values["to"], *context.get("text", ())]
    if len(words) > 1 and not {"body", "edit", "template"} & context.values.keys():
        if len(words) > 2:
            from shlex import quote  # noqa: PLC0415 - only for mistakes

            raise Usage(
                "the text is one argument",
                field="TEXT",
                hint=f"quote it: postroom send {quote(words[0])} {quote(' '.join(words[1:]))}",
            )
        context.values["body"] = words.pop()
    return [to for word in words for to in _parted(context, word)]


def _parted(context: Context, word: str) -> list[Any]:
    """Return the recipients in a word: JSON is one, and the commas after any: belong to it."""
    if word.startswith("{"):
        return [_json(context, word, "TO")]
    found = []
    while "," in word and not word.lstrip().startswith("any:"):
        first, _, word = word.partition(",")
        found.append(first)
    return [name.strip() for name in (*found, word)]


def _send_template(context: Context, to: list[Any]) -> Answer:
    """Send a letter with the text of a template; other fields may be set as in any letter."""
    from ..core.templates import SendTemplate  # noqa: PLC0415 - rare

    filled = context.get("fill", ())
    values = dict(filled)
    if len(values) < len(filled):
        raise Usage("fills a place twice", field="--fill")
    check_fields(context)
    try:
        request = {"to": to, "name": context.get("template"), "values": values}
        return context.answer_with(context.perform(SendTemplate, **request))
    except Invalid as refused:
        whole, _, place = (refused.field or "").partition(".")
        if whole == "values" and place not in {"", *values}:
            refused.hint = f"name its text by --fill {place}=…; {refused.hint}"
        raise


@command(
    "reply",
    ID,
    *CONTENT,
    Option(
        "--to-all",
        "--all",
        name="to_all",
        help="to everyone the letter went to, not to its sender alone",
        kind="flag",
    ),
    Option(
        "--done",
        help="you are done with the letter: acknowledge it in the same commit, unless somebody has claimed it",
        kind="flag",
    ),
    verb="messages.Reply",
    without=("in_reply_to",),
    view=views.receipt,
    about="Keeps thread, scope, priority and conversation, and puts Re: before the subject once. " + _TEXT,
    examples=(
        ('postroom reply m-1 "Merge sort." --as researcher', "answer a letter"),
        ('postroom reply m-1 --as researcher --done --body "Merge sort."', "and be done with it"),
    ),
    looks=True,
)
def run_reply(context: Context) -> Answer:
    if not context.get("done"):
        return context.answer()
    from ..core.compose import LetterFields  # noqa: PLC0415 - loaded already, with the verb

    body = content(context)
    fields = context.passed_options("to_all", *LetterFields.__struct_fields__)
    with context.progress():
        receipt = context.mailbox.read(context.get("id")).ack_and_reply(body, **fields)
    return context.answer_with(receipt)


def _answered(screen: Screen, data: Mapping[str, Any]) -> str:
    if data["letter"] is not None:
        return views.letter(screen, data)
    return f"No answer yet to {data['id']}. The same command with --key {data['key']} waits on.\n"


command(
    "ask",
    Option("TO", name="to", help="an agent's name, or any:CAPABILITY", required=True, complete="agents"),
    *BODY,
    verb="work.Ask",
    view=_answered,
    waits_for="letter",
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
command(
    "forward",
    ID,
    _TO,
    *CONTENT[1:],
    verb="messages.Forward",
    without=("in_reply_to",),
    needs_text=False,
    view=views.sent,
    about="A letter is relayed a limited number of times, and never back along its way. Without --body, nothing is"
    " added to it.",
    examples=(
        ("postroom forward m-1 reviewer --as researcher --body 'Yours, I think.'", "with a word of your own"),
    ),
    looks=True,
)
command(
    "broadcast",
    Option(
        "SCOPE",
        name="scope",
        help="a team; agents join one when they register",
        required=True,
        complete="scopes",
    ),
    *CONTENT,
    verb="messages.Broadcast",
    view=views.receipt,
    about=_TEXT,
    examples=(('postroom broadcast sorting --as planner --body "The release is on Friday."', "tell the team"),),
)


@command(
    "handoff",
    _TO,
    Option("--done", name="work_completed", help="what you have done so far, as a text", metavar="TEXT"),
    Option("--state", name="current_state", help="where it stands", metavar="TEXT"),
    Option("--next", name="next_steps", help="a next step", many=True, metavar="TEXT"),
    Option("--blocker", name="blockers", help="what stands in the way", many=True, metavar="TEXT"),
    Option("--modified", name="files_modified", help="a file that was changed", many=True, metavar="PATH",
           complete="files"),
    Option("--created", name="files_created", help="a file that was made", many=True, metavar="PATH",
           complete="files"),
    Option("--dependency", name="dependencies", help="what it depends on", many=True, metavar="TEXT"),
    Option("--escalation", name="related_escalations", help="the id of a related escalation", many=True,
           metavar="ID"),
    Option("--state-file", help="a file that holds the state", metavar="PATH", complete="files"),
    Option("--job", name="job_id", help="the id of the job", metavar="ID"),
    Option("--notes", help="anything else", metavar="TEXT"),
    Option(
        "--from-file",
        help="the whole handoff as a JSON object; - is standard input",
        metavar="PATH",
        complete="files",
        against=(
            "work_completed", "current_state", "next_steps", "blockers", "files_modified", "files_created",
            "dependencies", "related_escalations", "state_file", "job_id", "notes",
        ),
    ),
    EXTRA,
    verb="messages.HandOver",
    without=("handoff", "context", "data"),
    view=views.receipt,
    about="The recipient gets a letter of kind handoff: a text to read, and the same as an object in its context."
    " Give at least --done, or a file.",
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
)  # fmt: skip
def run_handoff(context: Context) -> Answer:
    from ..model.message import Handoff  # noqa: PLC0415 - loaded already, with the verb

    check_fields(context)
    fields = context.passed_options(*Handoff.__struct_fields__)
    if "from_file" in context.values:
        fields = _object(context, read_source(context, context.get("from_file"), "--from-file"), "--from-file")
    elif "work_completed" not in fields:
        raise Usage(
            "is missing", field="--done", hint="write what was done, or give the whole handoff by --from-file"
        )
    return context.answer(handoff=fields)


def drafts_of(context: Context) -> list[Draft]:
    """Return the letters of a file of JSON lines."""
    lines = read_source(context, context.get("drafts"), "--drafts").splitlines()
    found = [
        _draft(context, line, f"--drafts line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not found:
        raise Invalid("holds no letter", field="--drafts")
    return found


def _draft(context: Context, line: str, field: str) -> Draft:
    fields = _object(context, line, field)
    if "to" not in fields:
        raise Invalid("no agent is named", field=f"{field}: to")
    from ..mailbox import draft  # noqa: PLC0415 - rare

    try:
        return draft(fields.pop("to"), fields.pop("body", None), **fields)
    except Invalid as wrong:
        wrong.field = f"{field}: {wrong.field}"
        raise


def _object(context: Context, text: str, field: str) -> dict[str, Any]:
    value = _json(context, text, field)
    if not isinstance(value, dict):
        raise Invalid("is not an object", field=field)
    return value


def _json(context: Context, text: str, field: str) -> Any:
    limits = context.settings
    return read_json(text, field, depth=limits.max_depth, largest=limits.max_message_bytes)


# -- unsend, block


@command(
    "unsend",
    Option("ID", name="id", help="the letter's id, or how it begins", many=True, required=True, complete="sent"),
    about="A letter is taken back from all its recipients or none, as long as nobody has claimed or settled it. A"
    " recipient who had not read it never sees it. Several letters are taken back one after the other, until"
    " the first that cannot be. Taking one back twice is no error.",
    examples=(("postroom unsend m-2 --as coder", "a slip of the pen"),),
    json="letters",
    looks=True,
)
def run_unsend(context: Context) -> Answer:
    from ..core.messages import Unsend  # noqa: PLC0415 - not for other commands of this module

    back = [context.perform(Unsend, id=id).letter for id in dict.fromkeys(context.get("id"))]
    return context.answer_with(Messages(back), says("Took back {id}.", each="letters"))


_blocked = says("Blocked: {blocked}.", none="Nobody is blocked.")


@command(
    "block",
    Option("NAME", name="name", help="whose mail; it may be nobody yet", complete="agents"),
    verb="agents.Block",
    view=_blocked,
    about="Its sends to you fail with exit 77. You need not be registered.",
    examples=(
        ("postroom block spammer --as coder", "no more of it"),
        ("postroom block --as coder", "who is refused"),
    ),
)
def run_block(context: Context) -> Answer:
    if "name" in context.values:
        return context.answer()
    from ..core.agents import ListBlocked  # noqa: PLC0415 - only here

    context.looks = True
    return context.answer_with(context.perform(ListBlocked))


command(
    "unblock",
    Option("NAME", name="name", help="whose mail", required=True, complete="agents"),
    verb="agents.Unblock",
    view=_blocked,
    examples=(("postroom unblock spammer --as coder", "all is forgiven"),),
    looks=True,
)

# -- templates: letters written beforehand, which `send --template` fills in

_facts = record(
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


def _template(screen: Screen, data: Mapping[str, Any]) -> str:
    return _facts(screen, data) + "".join(f"{line}\n" for line in body_lines(data["template"]["body"]))


command(
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
command(
    "templates show",
    NAME,
    verb="templates.GetTemplate",
    view=_template,
    examples=(("postroom templates show review", "one of them"),),
    looks=True,
)
command(
    "templates save",
    NAME,
    *BODY,
    verb="templates.SaveTemplate",
    view=_template,
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
command(
    "templates delete",
    NAME,
    verb="templates.DeleteTemplate",
    view=says("Deleted {deleted}."),
    examples=(("postroom templates delete review", "gone; letters made from it stay"),),
    looks=True,
)

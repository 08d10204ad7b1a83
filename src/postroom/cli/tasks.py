"""The commands about tasks: assign one, show how it stands, move it by one step."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..core.tasks import FindTask, FoundTask
from ..core.threads import GetThread
from ..environment import variable
from ..errors import IllegalMove, LeaseLost
from ..formats.plain import plain
from ..model.codec import encode, to_plain
from ..model.task import MOVES, TaskState, movers
from .command import CONTENT, EXTRA, Option, command
from .errors import Usage
from .output import ago, due, hint, listing, record
from .views import receipt, thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..model.agent import Card
    from ..model.message import Message
    from ..model.task import TaskStatus
    from .answer import Answer, Screen
    from .context import Context
    from .output import View
    from .views import Data


STATES = tuple(str(state) for state in TaskState)
ID = Option(
    "ID", name="id", help="the letter that opened it, or a later one of it", required=True, complete="tasks"
)
NOT_HERE = ("kind", "cc", "bcc", "at", "in_reply_to")  # a step is reported to the other party alone, at once
WHY = Option("TEXT", name="reason", help="why, in place of --reason")
REASON = Option("--reason", help="why", metavar="TEXT", required=True)
NO_ACK = Option(
    "--no-ack",
    name="ack",
    help="keep the letter claimed: it is offered again if its holder dies, and done when the task is",
    kind="flag",
    value=False,
)  # fmt: skip
_TEXT = "A text comes from --body, - for standard input, or --edit."


_STATES = {
    "pending": "yellow", "input_required": "yellow", "accepted": "cyan", "working": "cyan", "completed": "green",
    "failed": "red", "rejected": "red", "canceled": "dim",
}  # fmt: skip


def _due(screen: Screen, task: Data) -> str:
    """Show when a task is due. A finished task cannot be overdue."""
    return (ago if task["is_final"] else due)(task["deadline"], screen.now)


def _listing(texts: Mapping[str, str]) -> View:
    """Return the view of a list of tasks; `texts` stand in for empty subjects."""
    return listing(
        "tasks",
        {
            "ID": "id",
            "STATE": "state",
            "FROM": "giver",
            "FOR": "receiver",
            "MOVED": "moved_at",
            "DUE": _due,
            "ABOUT": lambda _, task: task["subject"] or texts[task["id"]] or task["reason"] or "",
        },
        "No tasks.",
        then=("tasks show ID", "tells all about one"),
        paint=_STATES,
    )


_facts = record(
    {
        "Task": lambda _, task: task["id"],
        "State": "state",
        "Reason": "reason",
        "From": "giver",
        "For": "receiver",
        "About": "subject",
        "Given": "opened_at",
        "Due": _due,
    },
    "task",
)


def task_view(screen: Screen, data: Data) -> str:
    return _facts(screen, data) + "\n" + thread(screen, data)


def new_task_view(screen: Screen, data: Data) -> str:
    shown = receipt(screen, data)
    return shown if data["repeated"] else shown + hint(screen, f"tasks show {data['id']}", "tells how it stands")


def moved(screen: Screen, data: Data) -> str:
    """Show a task after a step, and the letter that reports it to the other party."""
    receipt = data.get("receipt")
    sent = f"Sent {receipt['id']}.\n" if receipt and not receipt["repeated"] else ""
    return _facts(screen, data) + sent


# -- commands

_STEPS = {
    TaskState.ACCEPTED: "accept", TaskState.WORKING: "start", TaskState.INPUT_REQUIRED: "ask",
    TaskState.COMPLETED: "complete", TaskState.FAILED: "fail", TaskState.REJECTED: "reject",
    TaskState.CANCELED: "cancel",
}  # fmt: skip


@command(
    "tasks",
    Option(
        "--role",
        help="which side you are on",
        kind="word",
        choices=("any", "given", "received"),
        against=("everyone",),
    ),
    Option(
        "--state",
        name="states",
        help=f"only in this state: {', '.join(STATES)}",
        kind="word",
        metavar="STATE",
        choices=STATES,
        many=True,
        against=("open",),
    ),
    Option("--open", help="only those that are not over", kind="flag"),
    verb="tasks.ListTasks",
    about="Those that moved last come first; 50 unless --limit says otherwise. A task is opened by a letter, and each"
    " step is a letter to the other party: pending, accepted or rejected, working, input_required, completed, failed,"
    " canceled.",
    examples=(
        ("postroom tasks --as planner --open", "what is not over yet"),
        ("postroom tasks --as coder --role received --state pending --json", "what waits for you, for a program"),
        ("postroom tasks --everyone --open", "what is not over yet in the whole room"),
    ),
    looks=True,
)
def run_tasks(context: Context) -> Answer:
    params: dict[str, Any] = {}
    if context.get("open"):
        params["states"] = [str(state) for state, after in MOVES.items() if after]
    found = context.perform(**params)
    untitled = () if context.screen.json else [task for task in found if not task.standing.subject]
    texts = {task.standing.letter: _text(context, task.standing) for task in untitled}
    return context.answer_with(found, _listing(texts))


def _text(context: Context, task: TaskStatus) -> str:
    """Return the first line of the letter that opened a task."""
    letters = context.perform(GetThread, thread=task.thread).letters
    return next((m.text.strip().partition("\n")[0] for m in letters if m.id == task.letter), "")


command(
    "tasks show",
    ID,
    verb="tasks.GetTask",
    view=task_view,
    examples=(("postroom tasks show t-1 --as planner", "how it stands, and what was said"),),
    looks=True,
)
command(
    "tasks give",
    Option("TO", name="to", help="an agent's name, or any:CAPABILITY", kind="address", required=True,
           complete="agents"),
    *CONTENT,
    verb="tasks.GiveTask",
    without=("kind",),
    view=new_task_view,
    about="The task is known by the id of its letter. The text comes from --body, else from standard input when that"
    " is not a terminal, else from $VISUAL or $EDITOR. If the task is not over at its deadline, you get a notice.",
    examples=(
        (
            'postroom tasks give reviewer "Review sort.py by noon." --as planner --deadline 2h',
            "with a deadline",
        ),
        (
            "postroom tasks give reviewer --as planner --body 'Review it.' --session '{\"chat\": 7}' --json",
            "remembering who asked",
        ),
    ),
)  # fmt: skip

# -- steps


@command(
    "tasks accept",
    ID,
    *CONTENT,
    NO_ACK,
    verb="tasks.TaskStep",
    without=(*NOT_HERE, "step", "reason"),
    needs_text=False,
    view=moved,
    about="The letter that opened it is acknowledged in the same commit. Your share (register --max-tasks), its"
    f" deadline and your allow list are checked. {_TEXT}",
    examples=(("postroom tasks accept t-1 --as reviewer", "I do it"),),
    looks=True,
)
@command(
    "tasks reject",
    ID,
    WHY,
    REASON,
    EXTRA,
    verb="tasks.TaskStep",
    without=(*NOT_HERE, "step", "body"),
    view=moved,
    examples=(("postroom tasks reject t-1 'no time' --as reviewer", "not me"),),
    looks=True,
)
@command(
    "tasks start",
    ID,
    *CONTENT,
    verb="tasks.TaskStep",
    without=(*NOT_HERE, "step", "reason"),
    needs_text=False,
    view=moved,
    about=f"Report it also when you go on without an answer to your question. {_TEXT}",
    examples=(("postroom tasks start t-2 --as reviewer", "begun"),),
    looks=True,
)
@command(
    "tasks ask",
    ID,
    *CONTENT,
    verb="tasks.TaskStep",
    without=(*NOT_HERE, "step", "reason"),
    view=moved,
    about="The task waits for the answer. The text comes from --body, else from standard input or $EDITOR, as in send.",
    examples=(('postroom tasks ask t-3 "Which branch?" --as reviewer', "a question"),),
    looks=True,
)
@command(
    "tasks answer",
    ID,
    *CONTENT,
    verb="tasks.TaskStep",
    without=(*NOT_HERE, "step", "reason", "token"),
    view=moved,
    about="The work goes on. The text comes from --body, else from standard input or $EDITOR, as in send.",
    examples=(("postroom tasks answer t-4 main --as planner", "an answer"),),
    looks=True,
)
@command(
    "tasks complete",
    ID,
    *CONTENT,
    verb="tasks.TaskStep",
    without=(*NOT_HERE, "step", "reason"),
    needs_text=False,
    view=moved,
    about=_TEXT,
    examples=(('postroom tasks complete t-3 --as reviewer --body "Looks good."', "with a result"),),
    looks=True,
)
@command(
    "tasks fail",
    ID,
    WHY,
    REASON,
    EXTRA,
    verb="tasks.TaskStep",
    without=(*NOT_HERE, "step", "body"),
    view=moved,
    examples=(("postroom tasks fail t-3 'the file is gone' --as reviewer", "sorry"),),
    looks=True,
)
@command(
    "tasks cancel",
    ID,
    WHY,
    Option("--reason", help="why", metavar="TEXT"),
    EXTRA,
    verb="tasks.TaskStep",
    without=(*NOT_HERE, "step", "body", "token"),
    view=moved,
    examples=(("postroom tasks cancel t-3 --as planner --reason 'no longer needed'", "never mind"),),
    looks=True,
)
def run_step(context: Context) -> Answer:
    """Move a task by the step that the command names, with a text or a reason."""
    params: dict[str, Any] = {"step": context.name.removeprefix("tasks "), "token": _token(context) or None}
    with _as_typed(context):
        return context.answer(**params)


@command(
    "tasks admit",
    ID,
    Option("--judge", help="a program that decides, too; else your capabilities do", metavar="PROGRAM"),
    NO_ACK,
    Option("--token", help="the token that claim printed; by default POSTROOM_TOKEN", metavar="TOKEN"),
    about="The allow list, the deadline and your share come first. Then the judge: it gets your card and the letter as"
    ' JSON on its standard input, {"card": …, "letter": …}; when it ends with 0 the task is accepted, else what'
    " it prints is the reason. Without one, the capabilities that the task's metadata asks for"
    " (required_capabilities) must be on your card. The giver is answered either way.",
    examples=(
        ("postroom tasks admit t-1 --as reviewer", "by the rules"),
        ("postroom tasks admit t-1 --as reviewer --judge 'grep -q Review'", "by a program"),
    ),
    json="task accepted",
    looks=True,
)
def run_tasks_admit(context: Context) -> Answer:
    id, token, box = context.get("id"), _token(context), context.mailbox
    judge = _judge(context.get("judge")) if "judge" in context.values else None
    with _as_typed(context):
        task = box.task(box.held(id, token) if token else id)
        accepted = task.admit(judge, ack=context.get("ack", True))
    return context.shown({"task": FoundTask(task.standing, task.session), "accepted": accepted}, moved)


@contextmanager
def _as_typed(context: Context) -> Iterator[None]:
    """Add the commands that may be typed instead to a refused step."""
    try:
        yield
    except IllegalMove as refused:
        if not refused.field:  # the table has no such move
            refused.hint = _possible_steps(context) or refused.hint
        raise
    except LeaseLost as lost:
        from .work import HOLDERS_ALONE  # noqa: PLC0415 - only for mistakes

        lost.hint = lost.hint if _token(context) else HOLDERS_ALONE
        raise


def _possible_steps(context: Context) -> str | None:
    """Return the steps that this caller can make now."""
    task = context.perform(FindTask).standing
    state, roles = task.state, task.roles_of(context.mailbox.name)
    steps = [_STEPS[after] for after in MOVES[state] if set(roles) & set(movers(state, after))]
    if state is TaskState.INPUT_REQUIRED and "giver" in roles:
        steps = ["answer"]
    if state is TaskState.ACCEPTED and "receiver" in roles and context.name == "tasks ask":
        return f"first report that you work on it: postroom tasks start {task.letter}"
    if state is TaskState.PENDING and not steps:
        return f"postroom unsend {task.letter} takes it back until it is claimed; once accepted, tasks cancel does"
    return f"from here: postroom tasks {', '.join(steps)}" if steps else None


def _token(context: Context) -> str:
    """Return the lease token; a program that `work` started has the one of its letter in the environment."""
    at_hand = variable("POSTROOM_TOKEN") if variable("POSTROOM_ID") == context.get("id") else ""
    token: str = context.get("token") or at_hand
    return token


def _judge(program: str) -> Callable[[Card, Message], str | None]:
    """Return a function that asks a program whether an agent is fit for a task, and why not."""
    import shlex  # noqa: PLC0415 - rare
    import subprocess  # noqa: PLC0415

    def judge(card: Card, letter: Message) -> str | None:
        request = encode({"card": to_plain(asdict(card)), "letter": plain(letter)})
        try:
            done = subprocess.run(shlex.split(program), input=request, stdout=subprocess.PIPE, check=False)  # noqa: S603 - the user's own
        except (OSError, ValueError, IndexError) as broken:
            raise Usage(f"cannot be started: {broken}", field="--judge") from None
        text = " ".join(done.stdout.decode("utf-8", "replace").replace("\0", "").split())
        return None if done.returncode == 0 else text[:2000] or "not fit"

    return judge

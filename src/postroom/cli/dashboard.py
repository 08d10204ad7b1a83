"""The command `dashboard`: it opens the dashboard in a browser, and lends it this person's authority while it runs.

The post room's daemon gives the link. What the person does in the browser comes back to this process, which carries
it out itself on the room, with the person's key, as `postroom reply` would. When it ends, the page only looks.
"""

from __future__ import annotations

import socket
import sys
import webbrowser
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.key_file import KeyFile, check_no_session
from ..core.presentation import one_line
from ..core.proof import is_person, sign_request
from ..core.verb import PROOF, from_params, parameters, perform
from ..environment import variable
from ..errors import Busy, NotAllowed, PostroomError
from ..formats.errors import result_of, rpc_error
from ..formats.plain import plain_result
from ..model.codec import encode
from ..model.names import HUMAN, check_agent, meant
from ..server.client import SocketClient, is_same_user
from ..server.protocol import own_verb
from ..store.address import served_at
from .command import Option, command
from .inbox.session import sign_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .answer import Answer, Screen
    from .context import Context

# What a visit may have done: verbs of the person's own mailbox and, with --operator, of the room.
OF_PERSONS = frozenset({"act", "send", "reply", "give_task", "task_step", "shown", "revive"})
OF_OPERATORS = frozenset({"revive", "revive_all", "purge_dead", "doctor"})


@command(
    "dashboard",
    Option("--print", name="prints", help="print the link, and open no browser", kind="flag"),
    Option("--look", name="looks", help="the page may only look, and this command returns at once", kind="flag"),
    Option("--operator", help="let the page also revive and delete dead letters, and run the doctor", kind="flag"),
    Option("--yes", name="unasked", help="a key with a passphrase: do not ask here before each act", kind="flag"),
    Option("--lock", help="end all open pages, whoever opened them", kind="flag"),
    about="Asks the running post room (postroom serve) for a link that is good once, for a minute, and opens it in your"
    " browser; it prints the link too. While this command runs, what you do in the page is done here, with your key:"
    " answers, approvals, tasks and letters in your name. Each is shown here, and with a key that has a passphrase asked for,"
    " unless --yes. When it ends, the page may only look. You act as --as, else"
    " POSTROOM_AGENT, else the human (the setting human). Over ssh, forward the port: ssh -L 4650:127.0.0.1:4650 HOST.",
    examples=(
        ("postroom dashboard", "what waits for you, and the whole room, in a browser"),
        ("postroom dashboard --look --json", "a link for a page that only looks, for a program"),
        ("postroom dashboard --lock", "end every open page"),
    ),
    json="link seconds acts ended",
    by=HUMAN,
    looks=True,
)
def run_dashboard(context: Context) -> Iterator[Answer]:
    """Open the dashboard; then carry out what is done in it, until this process is interrupted."""
    context.check_room()
    _check_no_agent(context)
    served = served_at(context.settings.store)
    if served is None:
        raise Busy("no post room is served here", field="room", hint="postroom serve, in another terminal")
    if context.get("lock"):
        ended = SocketClient(served).ask("lock_visits", _signed(context, "lock_visits", {}))["ended"]
        yield context.shown({"link": None, "seconds": None, "acts": False, "ended": ended}, _locked)
        return
    lends = not context.get("looks") and not context.screen.json
    params = {"agent_id": context.mailbox.name, "lends": lends, "operator": bool(context.get("operator"))}
    if not lends:
        opened = SocketClient(served).ask("open_visit", _signed(context, "open_visit", params))
        yield _opened(context, opened, "It may look, and change nothing.", acts=False)
        return
    yield from _Actor(context, served).run(_signed(context, "open_visit", params))


def _check_no_agent(context: Context) -> None:
    """Raise NotAllowed inside an agent's session, whoever --as names: its link would show an agent the whole room."""
    human = context.settings.human
    named = meant(check_agent(variable("POSTROOM_AGENT") or human, "mailbox"), human)
    person = named if is_person(context.core, named) else human
    check_no_session(context.core, person, context.agent_around)


def _signed(context: Context, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with this person's proof, where a person with a key asks."""
    signer = context.principal.signer
    return params if signer is None else sign_request(context.core, signer, context.mailbox.name, method, params)


def _opened(context: Context, opened: Mapping[str, Any], rights: str, *, acts: bool) -> Answer:
    """Open the link in a browser, where there is one, and return the answer."""
    is_far = variable("SSH_CONNECTION") or not (
        sys.platform == "darwin" or variable("DISPLAY") or variable("WAYLAND_DISPLAY")
    )
    if not (context.get("prints") or context.screen.json or is_far):
        webbrowser.open(opened["link"])
    data = {"link": opened["link"], "seconds": opened["seconds"], "acts": acts, "ended": None}
    shown = f"{data['link']}\n\nThe link is good once, within {data['seconds']:g} seconds. {rights}\n"
    return context.shown(data, lambda _screen, _data: shown)


def _locked(_screen: Screen, data: Mapping[str, Any]) -> str:
    return "1 page was ended.\n" if data["ended"] == 1 else f"{data['ended']} pages were ended.\n"


class _Actor:
    """One connection to the post room, over which a page has this process act."""

    def __init__(self, context: Context, path: str) -> None:
        self._rights = sign_in(context.mailbox) or "It may act for you until you press Ctrl-C here."
        self._context = context
        self._mailbox = context.mailbox.name
        self._of_operators = OF_OPERATORS if context.get("operator") else frozenset()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        if not is_same_user(self._socket):
            raise NotAllowed("another user of this machine serves this post room", field="room")
        signer = context.principal.signer
        self._asks = isinstance(signer, KeyFile) and signer.has_passphrase and not context.get("unasked")
        self._lines = self._socket.makefile("rb")

    def run(self, params: dict[str, Any]) -> Iterator[Answer]:
        """Open a visit, and carry out what it asks for until the post room closes."""
        with self._socket, self._lines:
            self._say("open_visit", params, id=1)
            yield _opened(self._context, result_of(self._lines.readline()), self._rights, acts=True)
            for line in self._lines:
                asked = msgspec.json.decode(line)
                if asked.get("method") == "visit/asked":
                    self._say("visit/answer", {"call": asked["params"]["call"], **self._answer(asked["params"])})
        raise Busy(
            "the post room has closed; the page may not act any more", hint="postroom dashboard, once it runs"
        )

    def _say(self, method: str, params: Mapping[str, Any], **more: Any) -> None:
        self._socket.sendall(encode({"jsonrpc": "2.0", "method": method, "params": params, **more}) + b"\n")

    def _answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out what a page asks for; return its result, or its error."""
        try:
            request = self._request(asked["verb"], asked["params"])
            self._confirm(f"{asked['verb']}{self._about(asked['params'])}")
            shown = plain_result(
                request.declaration(), perform(self._context.core, self._context.principal, request)
            )
        except PostroomError as refused:
            self._context.warn(one_line(f"{asked['verb']}: {refused}"))
            return {"error": rpc_error(refused)}
        self._context.warn(one_line(str(shown.get("done") or f"{asked['verb']}: done")))
        return {"result": shown}

    def _about(self, params: Mapping[str, Any]) -> str:
        """Return in words what a page asks for: the fields, and the letter that they are about."""
        fields = [f"{name} {value}" for name, value in params.items() if value and name not in {"key", "agent_id"}]
        id = str(params.get("letter") or params.get("id") or "")
        found = self._context.core.store.get([id]).get(id)
        letter = f"; the letter {one_line(found.message.subject)!r} of {found.message.sender}" if found else ""
        return f": {', '.join(fields)}{letter}"

    def _confirm(self, act: str) -> None:
        """Show what is done with the person's key; ask before that where the key has a passphrase."""
        self._context.warn(one_line(act))
        if not self._asks:
            return
        try:
            typed = input("Do it? [y/N] ")
        except EOFError:
            typed = ""
        if typed.strip().lower() not in {"y", "yes"}:
            hint = "type y in the terminal of postroom dashboard, or start it with --yes"
            raise NotAllowed("it was not confirmed", field="visit", hint=hint)

    def _request(self, name: str, params: Mapping[str, Any]) -> Any:
        """Return the request of a page: of this person's mailbox alone, or an operator's."""
        cls = own_verb(name) if name in OF_PERSONS | self._of_operators else None
        if cls is None:
            hint = "postroom dashboard --operator" if name in OF_OPERATORS else "type it in a terminal"
            raise NotAllowed(f"{name!a} is not done from this page", field="visit", hint=hint)
        own = {key: value for key, value in params.items() if key != PROOF}
        if "agent_id" in parameters(cls) and name not in self._of_operators:
            if name in OF_OPERATORS and own.get("agent_id", self._mailbox) != self._mailbox:
                raise NotAllowed("mail of another agent", field="visit", hint="postroom dashboard --operator")
            own["agent_id"] = self._mailbox
        return from_params(cls, own)

"""A verb: one request to a room, declared once and found on every surface.

    @verb("read", LetterResult, action="read")
    class Read(MailboxVerb):
        \"\"\"Return one letter, stamped as read.\"\"\"

        id: Annotated[str, "the letter's id"]

        def run(self, core: Core, principal: Principal) -> LetterResult: ...

The fields are the parameters: type, default and one line of help each. The docstring is the verb's help. A result
that is no object in JSON, such as a list, gets a name there: `@verb("peers", list[Peer], under="peers", ...)`.
`perform` authorises the caller and runs the verb; nothing else does. From the same declaration the surfaces make
JSON-RPC methods, socket actions, `POST /v1/VERB`, MCP tools, commands, JSON Schema and the reference pages.

A verb that comes over a wire is made by `from_params`, which checks every type. msgspec checks types there and not
in constructors, so what types cannot say is checked in `run` or `__post_init__`, for callers in Python too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from functools import cache, partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import msgspec
from msgspec import UNSET, Struct

from ..errors import Invalid
from ..model.names import check_agent, fold
from ..model.values import check_seconds
from .authorize import NOTIFIER, PROVEN, authorize, phrase_of
from .due import do_some
from .proof import check_person, is_person, own_name, prove_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..model.query import Moment
    from .authorize import Principal
    from .core import Core


R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
V = TypeVar("V", bound="type[Verb]")

# The help of a field that only callers in this process may give: it is no parameter over a wire.
LOCAL = "for callers in this process"
PROOF = "proof"  # the parameter that every verb takes over a wire

# Types of parameters. Over a wire a time is text in ISO 8601, or seconds from now.
PriorityWord = Annotated[
    str | int, msgspec.Meta(extra_json_schema={"anyOf": [{"enum": ["low", "normal", "high", "urgent"]}, {}]})
]

MANY = 50  # letters; a call about more does not run on the thread that serves everyone
LONGEST_SLEEP = 60.0  # seconds: look again even without a notification
LONGEST_WAIT = 300.0  # seconds; a caller that wants to wait longer calls again with the cursor
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_BROKEN = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<name>\w*)(?P<rest>.*)`)?", re.DOTALL)


class Declaration(Struct, frozen=True, kw_only=True):
    """What a verb says of itself besides its parameters."""

    name: str
    about: str  # the first line of its docstring
    result: type | str  # the type of what it returns; in words where another program's protocol defines it
    under: str | None = None  # the name of the result in its JSON; None: its JSON is an object of its own
    action: str  # the row of `authorize.RULES` that decides who may call it
    also: str | None = None  # a second row, where it needs two rights
    writes: bool = True  # does it change anything?
    slow: bool = False  # may it take long? Then never on the thread that serves everyone
    many: bool = False  # may it return any number of things? Then slow unless a small limit is given
    wide: bool = False  # does it write to a group of any size? Then on the thread of large calls
    waits: bool = False  # does it wait for mail? Then it has a parameter `timeout`
    everyone: bool = False  # without an agent, is it about the whole room, for whoever may see that?
    # Does one look serve all callers of a server for a while? Then it must not depend on the caller.
    shared: bool = False
    strict: bool = True  # is an unknown parameter refused? Other programs' protocols ignore it
    # Does it take a path or a function, return a secret, or administer the room? Then no wire has it.
    local: bool = False
    old_names: dict[str, str] = {}  # deprecated name of a parameter -> its name


class Verb(Struct, kw_only=True):
    """One request to a room, with its parameters. It is made for one call, and filled in while it is checked."""

    whose: ClassVar[str | None] = None  # the parameter that names the mailbox; None: it is about the room
    proof: Annotated[Mapping[str, Any] | None, LOCAL] = None  # parameters that a person signed, as they came

    def owners(self, _core: Core, _principal: Principal) -> list[str | None]:
        """Return the mailboxes that the request is about, for `authorize`; None stands for the room."""
        return [None]

    def named(self) -> str | None:
        """Return the agent whose mailbox the request names."""
        if self.whose is None:
            return None
        return getattr(self, parameters(type(self))[self.whose].field) or None

    def acting(self) -> str | None:
        """Return the agent as which a caller without a token makes this request; None: as no agent.

        There is never more than one: the request is carried out as this agent, and whatever else it would touch is
        refused.
        """
        return self.named()

    def run(self, core: Core, principal: Principal) -> Any:
        """Carry out the request, which is authorised. One that waits looks once, and never blocks."""
        raise NotImplementedError

    def is_empty(self, result: Any) -> bool:
        """Return whether a verb that waits has found nothing yet."""
        return not result

    def mailboxes(self) -> list[str]:
        """Return the mailboxes for whose mail the request waits."""
        return []

    def longest_sleep(self) -> float:
        """Return after how many seconds one that waits looks again, even if no mail came and no timer is due."""
        return LONGEST_SLEEP

    @classmethod
    def declaration(cls) -> Declaration:
        return declared_by[cls]


class MailboxVerb(Verb, kw_only=True):
    """A request about one agent's mailbox."""

    whose: ClassVar[str | None] = "agent_id"
    agent_id: Annotated[str, "whose mailbox; with a token, the token's agent"] = ""

    def owners(self, core: Core, principal: Principal) -> list[str | None]:
        if not self.agent_id:
            if principal.agent is None and self.declaration().everyone:
                return [None]
            if principal.agent is None:
                raise Invalid("no agent is named", field="agent_id", hint="set agent_id, or use an agent's token")
            self.agent_id = principal.agent
        self.agent_id = checked_mailbox(core, self.agent_id)
        return [self.agent_id]

    def mailboxes(self) -> list[str]:
        return [self.agent_id]

    @property
    def mailbox(self) -> str | None:
        """The mailbox, or None: the request is about the whole room."""
        return self.agent_id or None


def checked_mailbox(core: Core, name: Any) -> str:
    """Return the mailbox that a name stands for: the human's has several."""
    checked = check_agent(name, "mailbox")
    # Asked here too, for every send, claim and ack passes here, and few of them are about a person.
    return own_name(core, checked) if fold(checked) in core.people.names else checked


class Runs(Protocol[R_co]):
    """A verb by what it returns."""

    def run(self, core: Core, principal: Principal) -> R_co: ...


VERBS: dict[str, type[Verb]] = {}  # every verb that was imported, by its name
declared_by: dict[type[Any], Declaration] = {}


def verb(
    name: str, result: type | str, *, registry: dict[str, type[Verb]] = VERBS, **declared: Any
) -> Callable[[V], V]:
    """Declare a verb, and make it known to every surface; one of another protocol, to its registry alone."""

    def declare(cls: V) -> V:
        about = (cls.__doc__ or "").strip().partition("\n")[0]
        declared_by[cls] = Declaration(name=name, about=about, result=result, **declared)
        registry[name] = cls
        return cls

    return declare


def load_verbs() -> None:
    """Import every module of core, so that all verbs are known."""
    from importlib import import_module  # noqa: PLC0415 - a command loads the verb that it calls
    from pkgutil import iter_modules  # noqa: PLC0415 - as above

    package = __name__.rpartition(".")[0]
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


def perform(core: Core, principal: Principal, request: Runs[T]) -> T:
    """Authorise the caller and carry out the request. One that waits blocks until there is something.

    After a request that writes, a share of what is due in the room is done, too (`due`).
    """
    look = authorised(core, principal, request)
    verb: Any = request
    declaration = declared_by[type(verb)]
    result = _waited(core, verb, look) if declaration.waits and verb.timeout != 0 else look()
    # What is slow looks after the room itself.
    if declaration.writes and not declaration.slow and core.clock.now().steady >= core.next_look.at:
        do_some(core)
    return result


def _waited(core: Core, request: Any, look: Callable[[], T]) -> T:
    """Look until there is something, or the time of the request is up; return what was found last."""
    seconds = check_seconds(request.timeout, "timeout")
    found = look()
    if seconds == 0 or not request.is_empty(found):
        return found
    end, mailboxes = time.monotonic() + seconds, request.mailboxes()
    watch = core.store.watch(mailboxes)
    try:
        while True:
            began = core.now()
            found = look()  # after the watch is set: a letter that came before it would notify nobody
            left = end - time.monotonic()
            if left <= 0 or not request.is_empty(found):
                return found
            watch.wait(min(left, request.longest_sleep(), seconds_to_sleep(core, mailboxes, began)))
    finally:
        watch.close()


def seconds_to_sleep(core: Core, mailboxes: Sequence[str], began: Moment) -> float:
    """Return how long to sleep after a look that found nothing, until a timer of these mailboxes is due.

    `began` is when that look began: a timer that ran out during the look counts, for the look may have missed it.
    """
    timer = core.store.overdue(began, mailboxes, 0, ahead=LONGEST_SLEEP).next_in
    if timer is None:
        return LONGEST_SLEEP
    # A millisecond more, so that the timer is surely over when we look.
    return max(0.0, timer - (core.now().steady - began.steady)) + 0.001


def authorised(core: Core, principal: Principal, request: Runs[T]) -> Callable[[], T]:
    """Authorise the caller, and return the call that carries out the request once, without waiting."""
    verb: Any = request
    declaration = declared_by[type(verb)]
    if verb.proof is not None:
        principal = prove_request(core, principal, declaration.name, verb.proof)
    for owner in verb.owners(core, principal):
        authorize(principal, declaration.action, owner, reads=not declaration.writes)
        needs_key = declaration.action in PROVEN and (declaration.action, principal) != ("ring", NOTIFIER)
        if needs_key and declaration.writes and owner is not None and is_person(core, owner):
            check_person(core, principal, owner, phrase_of(declaration.action))
        if declaration.also is not None:
            authorize(principal, declaration.also, owner, reads=not declaration.writes)
    return partial(request.run, core, principal)


def request(verb: Callable[..., T], params: Mapping[str, Any]) -> T:
    """Return the request that a call in Python makes; an unknown parameter is refused."""
    try:
        return verb(**params)
    except TypeError:
        known = msgspec.structs.fields(cast("type[Verb]", verb))
        unknown = params.keys() - {field.name for field in known}
        if not unknown:
            raise
        hint = ", ".join(field.name for field in known)
        raise Invalid("there is no such parameter", field=min(unknown), hint=hint) from None


# -- parameters


class Parameter(Struct, frozen=True):
    """A parameter of a verb, for help, schemas and pages."""

    name: str
    field: str  # its name in Python, where the name itself is a keyword
    type: Any
    help: str
    required: bool
    default: Any = None
    deprecated: tuple[str, ...] = ()  # older names that are still accepted
    takes_time: bool = False  # is a text read as a time?


@cache
def parameters(cls: type[Verb]) -> dict[str, Parameter]:
    """Return the parameters of a verb by name: its own, then those that it inherits, and the agent last."""
    declaration = cls.declaration()
    found = {}
    fields = {field.name: field for field in msgspec.structs.fields(cls)}
    own_first = dict.fromkeys(name for base in cls.__mro__ for name in vars(base).get("__annotations__", ()))
    for field in (fields[name] for name in own_first if name in fields):  # without class variables
        wanted, about = get_args(field.type) if get_origin(field.type) is Annotated else (field.type, "")
        if about is LOCAL:
            continue
        name = field.encode_name
        old = tuple(old for old, new in declaration.old_names.items() if new == name)
        found[name] = Parameter(
            name=name,
            field=field.name,
            type=wanted,
            help=about,
            required=field.required,
            default=field.default,
            deprecated=old,
            takes_time=datetime in get_args(wanted),
        )
    if "agent_id" in found:
        found["agent_id"] = found.pop("agent_id")
    return found


def set_names(cls: type[Verb], params: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the parameters that a call gives."""
    known, old = parameters(cls), cls.declaration().old_names
    for written, value in params.items():
        name = written if written in known else snake(written)
        name = old.get(name, name)
        if name in known and value is not None:
            yield name


def from_params(cls: type[V_], params: Mapping[str, Any]) -> V_:
    """Return the request that these parameters of a wire make, every value of the right type.

    Names may be written in camelCase. Null means "not given", except for a parameter whose default is UNSET.
    """
    known, declaration = parameters(cls), cls.declaration()
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    for name, value in params.items():
        if name == PROOF and value is None:
            continue
        if name == PROOF:  # of any verb: the person's signature of this request
            values[PROOF], written[PROOF] = params, PROOF
            continue
        own = name if name in known else snake(name)
        own = declaration.old_names.get(own, own)
        if own not in known:
            if declaration.strict:
                raise Invalid("there is no such parameter", field=name, hint=", ".join(known) or "it takes none")
            continue
        if value is not None or known[own].default is UNSET:
            is_time = known[own].takes_time and isinstance(value, str)
            values[own], written[own] = parse_time(value, name) if is_time else value, name
    for name, parameter in known.items():
        if parameter.required and name not in values:
            raise Invalid("is missing", field=name, hint=parameter.help)
    try:
        return msgspec.convert(values, cls)
    except msgspec.ValidationError as broken:
        raise _invalid(str(broken), written) from None


def parse_time(text: str, field: str) -> datetime:
    """Return the time that a text in ISO 8601 says."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(
            f"{text!a} is not a time", field=field, hint="a time such as 2026-01-31T12:00:00Z, or seconds from now"
        ) from None
    if time.tzinfo is None:
        raise Invalid("does not say in which time zone", field=field, hint="end it with Z for UTC")
    return time


V_ = TypeVar("V_", bound=Verb)


def set_parameters(request: Verb) -> dict[str, Any]:
    """Return the parameters of a request that are not as their defaults, by name."""
    known = parameters(type(request)).values()
    return {one.name: v for one in known if (v := getattr(request, one.field)) != one.default or one.required}


def snake(name: str) -> str:
    """Return a name in snake case: `inReplyTo` -> `in_reply_to`."""
    return _CAPITAL.sub(r"_\1", name).lower()


def _invalid(text: str, written: Mapping[str, str]) -> Invalid:
    """Return msgspec's complaint with the field under the name that the caller wrote."""
    matched = _BROKEN.fullmatch(text)
    what, name, rest = (text, "", "") if matched is None else matched.groups("")
    types = re.fullmatch(r"Expected `(.*)`, got `(.*)`", what)
    plain = what if types is None else f"must be {_in_words(types[1])}, not {_in_words(types[2])}"
    return Invalid(plain, field=written.get(name, name) + rest)


_TYPE_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "datetime": "a time such as 2026-01-31T12:00:00Z",
}


def _in_words(types: str) -> str:
    """Return types as a person names them: `str | null` -> `text`."""
    words = [_TYPE_WORDS.get(one, one) for one in types.split(" | ") if one != "null"]
    return " or ".join(dict.fromkeys(words)) or "null"

"""The commands about other systems: peers, their trust and tokens, and mail folders mounted as systems."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from getpass import getpass
from typing import TYPE_CHECKING, Any

from ..core import outbox
from ..core import peers as core_peers
from ..environment import AUTH_TOKEN, variable
from ..errors import Busy, Invalid, PostroomError
from ..federation.mounts import forget
from ..formats.plain import plain
from ..model.names import system_of
from ..policy.trust import speaks_for
from ..server.client import SocketClient
from ..server.tls import certificate_at, fingerprint_of_pem, first_certificate
from ..store.address import absolute, served_at
from .answer import Answer
from .command import LIMIT, Option, command
from .errors import NOT_NOW, Usage
from .output import hint, listing, one_line, record, says, secret
from .text import STDIN, read_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model.peer import Peer
    from .answer import Screen
    from .context import Context


SYSTEM = Option("SYSTEM", help="the name of the other system", required=True, complete="peers")
WHERE = " --url wss://THIS-MACHINE:4650/map"  # this system does not know its own address


# -- views


def added(ours: str, screen: Screen, data: Mapping[str, Any]) -> str:
    peer, changed = data["peer"], data["changed"]
    if data["token"]:
        text = (
            f"{peer['system']} shows this when it calls. It is not shown again; over there it goes to the command"
        )
        return f"{data['token']}\n\n{text}\n  {_there(ours, WHERE)}, on its standard input\n"
    if changed is None:
        text = says("{peer[system]} is a peer now.")(screen, data)
    elif not changed:
        text = says("{peer[system]} is a peer, as before.")(screen, data)
    else:
        text = says("{peer[system]} was a peer already. New is:")(screen, data)
        text += "".join(
            f"  {name.replace('_', '-')}: {_value(peer, name)}{_was(data, name)}\n" for name in changed
        )
    if peer["url"].startswith("wss:") and not peer["pin"]:
        text += hint(screen, f"peers trust {peer['system']}", "look at its certificate, and insist on it")
    return text


def _was(data: Mapping[str, Any], name: str) -> str:
    """Return the former content of a list: a user who meant to add to it sees that the rest is gone."""
    is_gone = name in {"tags", "scopes", "relays_for"} and data["former"][name]
    return f" (it was: {_value(data['former'], name)})" if is_gone else ""


def _value(peer: Mapping[str, Any], name: str) -> str:
    if name == "token":
        return "another one, which we show there" if peer["shows_token"] else "none"
    if name == "scopes":
        return _scopes(peer)
    value = peer[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(value if isinstance(value, str) else ", ".join(value)) or "none"


def _scopes(peer: Mapping[str, Any]) -> str:
    return "; ".join(f"{ours} with {', '.join(theirs)}" for ours, theirs in peer["scopes"].items()) or "all"


def how_to_bring(ours: str, system: str, where: str = "") -> str:
    """Return what to do with a token that went into a file or a pipe."""
    return f"{one_line(system)} shows this when it calls; over there: {_there(ours, where)}"


def _there(ours: str, where: str) -> str:
    return f"postroom peers add {one_line(ours)}{where} --token-file -"


_listing = listing(
    "peers",
    {
        "SYSTEM": "system",
        "STATE": lambda _, peer: state(peer),
        "LINK": lambda _, peer: peer["link"]["state"] if peer["link"] else "-",
        "WAITING": "waiting",
        "EXPOSURE": "exposure",
        "PROOF": "auth",
        "WHERE": lambda _, peer: peer["url"] or peer["place"] or "calls us",
    },
    "No peers: mail goes to no other system, and none is taken.",
    paint={
        "ALERT": "red",
        "not trusted": "yellow",
        "trusted": "green",
        "connected": "green",
        "disconnected": "yellow",
    },
)


def listed(screen: Screen, data: Mapping[str, Any]) -> str:
    lines = [_alert(peer) for peer in data["peers"] if peer["alert"]]
    lines += [
        f"There is no way to {one_line(system)}: {_letters(many)} for it {'waits' if many == 1 else 'wait'}.\n"
        for system, many in data["stranded"].items()
    ]
    first = "" if data["peers"] else hint(screen, "peers add SYSTEM")
    return _listing(screen, data) + "".join(lines) + first


def _link(_screen: Screen, peer: Mapping[str, Any]) -> str:
    if not peer["link"]:
        return "nobody serves this room" if peer["trusted"] else "none"
    problem = peer["link"]["problem"]
    return f"{peer['link']['state']}: {problem}" if problem else str(peer["link"]["state"])


def _letters(many: int) -> str:
    return "1 letter" if many == 1 else f"{many} letters"


def pinged(_screen: Screen, data: Mapping[str, Any]) -> str:
    system = one_line(data["system"])
    if data["answers"] and data["seconds"] is not None:
        return f"{system} answers in {data['seconds'] * 1000:.1f} ms.\n"
    text = f"{system} is {one_line(data['state'])}: {one_line(data['problem'] or '')}\n"
    return text + (f"What to do: {one_line(data['hint'])}\n" if data["hint"] else "")


def all_pinged(screen: Screen, data: Mapping[str, Any]) -> str:
    none = "No peers: there is nobody to ask.\n" + hint(screen, "peers add SYSTEM")
    return "".join(pinged(screen, result) for result in data["peers"]) or none


def state(peer: Mapping[str, Any]) -> str:
    return "ALERT" if peer["alert"] else "trusted" if peer["trusted"] else "not trusted"


_EXPOSURES = {
    "none": "nobody",
    "gateway": "the agents that it knows by name; it gets no list",
    "all": "everybody",
}


def _reaches(_screen: Screen, peer: Mapping[str, Any]) -> str:
    tags = ", ".join(peer["tags"])
    return f"agents with one of {tags}" if peer["exposure"] == "tagged" else _EXPOSURES[peer["exposure"]]


def _proof(_screen: Screen, peer: Mapping[str, Any]) -> str:
    if peer["auth"] in {"mtls", "none"}:
        return str(peer["auth"])
    parts = [
        *(["we show a token"] if peer["shows_token"] else []),
        *(["it shows one"] if peer["knows_token"] else []),
        *([f"the one before is good until {peer['former_until']}"] if peer["former_until"] else []),
    ]
    return f"{peer['auth']}: {', '.join(parts)}"


_facts = record(
    {
        "System": "system",
        "State": lambda _, peer: state(peer),
        "Link": _link,
        "Waiting": lambda _, peer: _letters(peer["waiting"]),
        "Where": lambda _, peer: peer["url"] or peer["place"] or "it calls us",
        "Proof": _proof,
        "Certificate": lambda _, peer: (
            peer["pin"] or ("as the machine's authorities say" if peer["url"][:4] == "wss:" else "")
        ),
        "Reaches of ours": _reaches,
        "Scopes": lambda _, peer: _scopes(peer),
        "Speaks for": lambda _, peer: ", ".join([peer["system"], *peer["relays_for"]]),
        "Through us": lambda _, peer: f"reaches {'further systems' if peer['relays_to'] else 'no further system'}",
        "From": lambda _, peer: "the file of peers" if peer["of_file"] else "",
    },
    "peer",
)


def whole(screen: Screen, data: Mapping[str, Any]) -> str:
    return _facts(screen, data) + (_alert(data["peer"]) if data["peer"]["alert"] else "")


def trusted(_screen: Screen, data: Mapping[str, Any]) -> str:
    peer, system = data["peer"], one_line(data["peer"]["system"])
    if data["token"]:
        text = "It is not shown again. The one before is good until this one was shown, or for a day.\n"
        return f"{data['token']}\n\nThe new token of {system}. {text}"
    if not peer["trusted"]:
        return f"{system} is not trusted any more.\n"
    if not peer["pin"]:
        return f"{system} is trusted.\n"
    was = f"It was {data['former_pin']}.\n" if data["former_pin"] else ""
    text = f"{system} is trusted, with this certificate alone:\n  {peer['pin']}\n{was}"
    if peer["of_file"]:
        return text
    digits = peer["pin"].removeprefix("sha256:").upper()
    openssl = ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))
    return f"{text}Compare it with what its operator says. openssl writes it so:\n  {openssl}\n"


def invited(_screen: Screen, data: Mapping[str, Any]) -> str:
    return f"{data['invitation']}\n\n{_how_to_join(data['peer']['system'], data['url'])}\n"


def _how_to_join(system: str, url: str) -> str:
    return (
        f"It is a secret, and not shown again: whoever has it joins as {one_line(system)}. Over there:"
        f" postroom peers join, with this on standard input; then it calls {one_line(url)}"
    )


def joined(screen: Screen, data: Mapping[str, Any]) -> str:
    system = one_line(data["peer"]["system"])
    if not data["changed"]:
        return f"{system} is a peer, as before.\n"
    pin = f", with this certificate alone:\n  {data['peer']['pin']}" if data["peer"]["pin"] else "."
    text = f"{system} is a peer now{pin}\nThis room is called {one_line(data['system'])} there.\n"
    return text + hint(
        screen, f"peers ping {data['peer']['system']}", "check that it answers; needs postroom serve"
    )


def removed(_screen: Screen, data: Mapping[str, Any]) -> str:
    waiting = "".join(
        f"Waiting for {one_line(system)}: {_letters(many)}. There is no way there now; if none is added before"
        " outbox_max_age has passed, they are dead, and their senders get bounces.\n"
        for system, many in data["waiting"].items()
    )
    return f"{one_line(data['removed'])} is not a peer any more.\n{waiting}"


def _alert(peer: Mapping[str, Any]) -> str:
    system = one_line(peer["system"])
    text = f"\nALERT: {system} came with another certificate, {peer['alert']}, and was refused.\n"
    return f"{text}If its operator changed it: postroom peers trust {system}. Else this is another machine.\n"


# -- commands about peers


@command(
    "peers invite",
    SYSTEM,
    Option(
        "--url",
        help="where it calls us, such as wss://mail.example.com:4650/map; by default where postroom serve listens",
        metavar="URL",
    ),
    Option(
        "--certificate",
        help="with --url: our certificate there, a PEM file; without it, authorities decide",
        metavar="FILE",
        complete="files",
    ),
    about="Two commands link two systems: this one on the system that is called, and postroom peers join on the one"
    " that calls. The invitation holds our name, our address, a new token and the fingerprint of our certificate."
    " It is a secret: whoever has it can join as that system. Into a file or a pipe it is printed alone. It stays"
    " good for that one system; inviting it again makes another token, and the old one is good until the new one"
    " was used, or for a day. What the peer may do is changed by postroom peers add.",
    examples=(("postroom peers invite paris --url wss://mail.example.com:4650", "it joins by what is printed"),),
    verb="peers.InvitePeer",
    without=("pin",),
    view=secret("invitation", invited),
    json="invitation peer url",
)
def run_peers_invite(context: Context) -> Answer:
    url, pin = _our_address(context)
    made = context.perform(url=url, pin=pin)
    context.note_beside(_how_to_join(made.peer.system, url))
    return context.answer_with(made, url=url)


def _our_address(context: Context) -> tuple[str, str]:
    """Return our address, and the fingerprint of our certificate there."""
    if "url" in context.values:
        file = context.get("certificate")
        pem = read_source(context, file, "--certificate") if file else ""
        return context.get("url"), fingerprint_of_pem(pem, "--certificate") if pem else ""
    if "certificate" in context.values:
        raise Usage(
            "goes with --url",
            field="--certificate",
            hint="leave it out: the running postroom serve uses its own certificate",
        )
    address = _ask(context, "links").get("address") or {}
    if not address:
        raise Invalid(
            "postroom serve does not know its public address",
            field="--url",
            hint="--url wss://THIS-MACHINE:4650 --certificate FILE, or postroom serve with --http and --http-name",
        )
    return address["url"], address["pin"]


@command(
    "peers join",
    Option(
        "INVITATION",
        help="what postroom peers invite printed over there; better on standard input, which is read without this or"
        " with -, for it is a secret; at a terminal it is asked for and not shown",
    ),
    about="The system that made the invitation is added, with its address, our token for it and its certificate, and"
    " no other certificate is taken there. A room without a name takes the one by which it was invited. The same"
    " invitation again changes nothing; on a third system it would take the place of this one, so keep it secret."
    " A running daemon calls the new peer at once.",
    examples=(("postroom peers join < invitation", "needs postroom serve to carry the mail"),),
    verb="peers.JoinPeer",
    shape=lambda _, found: {"peer": plain(found.peer), "system": found.system, "changed": found.is_new},
    view=joined,
    json="peer system changed",
)
def run_peers_join(context: Context) -> Answer:
    source = context.get("invitation") or STDIN
    text = _secret(context, STDIN, "invitation", "The invitation: ") if source == STDIN else source
    return context.answer(invitation=text)


@command(
    "peers add",
    SYSTEM,
    Option(
        "--url",
        help="where we call it, such as wss://mail.example.com:4650/map; without this, it calls us",
        metavar="URL",
    ),
    Option(
        "--auth",
        help="how each proves itself: a token (bearer, the default, or api-key), its certificate (mtls), or not at"
        " all (none), which is for a peer on this machine that cannot",
        kind="word",
        choices=("bearer", "api-key", "mtls", "none"),
    ),
    Option(
        "--token-file",
        help="what we show there: a file whose first line it is, or - for standard input; at a terminal you are"
        " asked for it, and it is not shown",
        metavar="FILE",
        complete="files",
    ),
    Option(
        "--exposure",
        help="which of our agents it sees and reaches: nobody (none), those it knows by name (gateway, the default), those"
        " with a tag (tagged), everybody (all)",
        kind="word",
        choices=("none", "gateway", "tagged", "all"),
    ),
    Option(
        "--tag",
        name="tags",
        help="with tagged: a scope or tag of those it sees and reaches",
        many=True,
        metavar="NAME",
        complete="scopes",
    ),
    Option(
        "--scope",
        name="scopes",
        help="a scope of ours and with what it exchanges mail: SYSTEM, SYSTEM/SCOPE or *. Where one is named, what is"
        " not named does not pass",
        kind="rule",
        many=True,
        metavar="OURS=THEIRS",
    ),
    Option("--relays-for", help="a further system that it speaks for and leads to", many=True, metavar="SYSTEM"),
    Option(
        "--relays-to",
        help="may it reach further systems through us? no by default",
        kind="word",
        choices=("yes", "no"),
    ),
    about="Two systems are peers once each has added the other. One of them calls the other. Where it calls us, a"
    " token is made and shown once, and only its hash is kept; give it to the other side, which uses --url"
    " and --token-file. A token is never an argument, and into a file or a pipe it is printed alone. Adding"
    " a peer again changes the options that are set and leaves the rest; a list replaces the former one, and"
    " an empty one ('') removes it. A running daemon applies the change at once.",
    examples=(
        ("postroom peers add berlin", "it calls us; shows the token that it needs"),
        (
            "postroom peers add rome --url wss://mail.example.com:4650 --token-file rome.token",
            "we call it, with what it gave us",
        ),
        (
            "postroom peers add hub --relays-for tokyo --exposure tagged --tag public",
            "a hub, which leads to tokyo",
        ),
    ),
    json="peer token changed former",
)
def run_peers_add(context: Context) -> Answer:
    system, fields = context.get("system"), context.passed_options("url", "auth", "exposure")
    for name in ("tags", "relays_for"):
        if name in context.values:
            fields[name] = tuple(filter(None, context.get(name)))
    if "scopes" in context.values:
        rules: dict[str, tuple[str, ...]] = {}
        fields["scopes"] = rules
        for ours, theirs in filter(None, context.get("scopes")):
            rules[ours] = (*rules.get(ours, ()), theirs)
    if "relays_to" in context.values:
        fields["relays_to"] = context.get("relays_to") == "yes"
    if "token_file" in context.values:
        question = f"The token that {system!a} showed for us: "
        fields["token"] = _secret(context, context.get("token_file"), "--token-file", question)
    before = None if context.is_new_room else core_peers.peer(context.core, system)
    made = context.perform(core_peers.AddPeer, fields=fields)
    ours, after = context.room.system, made.peer
    if made.token:
        context.note_beside(how_to_bring(ours, after.system, WHERE))
    changed = former = None
    if before is not None:
        changed = [name for name in _CHANGEABLE if getattr(before, name) != getattr(after, name)]
        former = {name: plain(before)[name] for name in changed if name != "token"}
    data = {"peer": plain(after), "token": made.token or None, "changed": changed, "former": former or {}}
    return Answer(context.name, data, secret("token", partial(added, ours)))


_CHANGEABLE = ("url", "auth", "token", "exposure", "tags", "scopes", "relays_for", "relays_to")


def _secret(context: Context, source: str, field: str, question: str) -> str:
    """Return the first line of a file or of standard input. At a terminal it is typed without echo."""
    text = ""
    if source == STDIN and sys.stdin is not None and sys.stdin.isatty():
        with suppress(EOFError):  # Ctrl-D
            text = getpass(question)
    else:
        text = read_source(context, source, field)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise Invalid(
            "is empty",
            field=field,
            hint="paste what postroom peers invite, or peers add, printed at the other system",
        )
    return lines[0]


@command(
    "peers",
    LIMIT,
    examples=(("postroom peers", "who they are"),),
    verb="peers.ListPeers",
    view=listed,
    json="system peers stranded",
    looks=True,
)
def run_peers_list(context: Context) -> Answer:
    found = context.perform()
    _, stranded = outbox.count_waiting(context.core)
    data = {"system": context.room.system, "peers": _with_links(context, found), "stranded": stranded}
    return Answer(context.name, data, listed)


def _with_links(context: Context, peers: list[Peer]) -> list[dict[str, Any]]:
    """Return peers as JSON, each with the state of its link, if a server knows it, and the letters that wait."""
    links = _links(context) if peers else {}
    waiting, _ = outbox.count_waiting(context.core)
    return [
        plain(peer) | {"link": links.get(peer.system), "waiting": waiting.get(peer.system, 0)} for peer in peers
    ]


def _links(context: Context) -> dict[str, Any]:
    """Return the links of the room's server by system; nothing where no server answers."""
    with suppress(PostroomError):
        return {link.pop("system"): link for link in _ask(context, "links")["links"]}
    return {}


def why_it_waits(context: Context, mailbox: str) -> str | None:
    """Return why a letter for another system still waits: no server runs, or the link is down; else None."""
    core = context.core
    if served_at(context.room.settings.store) is None:
        return "waits: nobody serves this room"
    peer = outbox.peer_towards(core, core_peers.all_peers(core), system_of(mailbox))
    link = None if peer is None else _links(context).get(peer.system)
    if peer is None or link is None or link["state"] == "connected":
        return None
    return f"waits: {peer.system} is {link['state']}" + (f", {link['problem']}" if link["problem"] else "")


@command(
    "peers ping",
    Option("SYSTEM", help="the name of the other system; by default all of them", complete="peers"),
    about="The daemon asks over the link that letters use. A peer that it calls and that is not connected is"
    " called at once. For a mounted folder, it checks that the folder is there.",
    examples=(
        ("postroom peers ping paris", "needs postroom serve"),
        ("postroom peers ping", "all of them, one after the other"),
    ),
    json="system answers state url seconds problem hint peers",
    looks=True,
)
def run_peers_ping(context: Context) -> Answer:
    named = "system" in context.values
    found = context.perform(core_peers.GetPeer if named else core_peers.ListPeers)
    every = [_ask(context, "ping_peer", system=peer.system) for peer in ([found] if named else found)]
    code = 0 if all(result["answers"] for result in every) else NOT_NOW
    if named:
        return Answer(context.name, every[0], pinged, code=code)
    return Answer(context.name, {"peers": every}, all_pinged, code=code)


def _ask(context: Context, action: str, **args: Any) -> Any:
    """Send a request to the room's server, which alone has links."""
    path = served_at(context.room.settings.store)
    if path is None:
        raise Busy("nobody serves this room, so it has no links to others", field="room", hint="postroom serve")
    return SocketClient(path, token=variable(AUTH_TOKEN), patience=0.5).ask(action, args)


command(
    "peers show",
    SYSTEM,
    examples=(("postroom peers show paris", "one of them"),),
    verb="peers.GetPeer",
    shape=lambda context, found: {"peer": _with_links(context, [found])[0]},
    view=whole,
    looks=True,
)


@command(
    "peers trust",
    SYSTEM,
    Option("--pin", help="the certificate with this fingerprint, without a look at it", metavar="SHA256"),
    Option(
        "--certificate",
        help="the certificate in this file (PEM); one that calls us by mtls needs that",
        metavar="FILE",
        complete="files",
    ),
    Option(
        "--rotate",
        help="make a new token for it to show here; the old one is good until the new one was shown for the first"
        " time, or for a day",
        kind="flag",
    ),
    Option("--withdraw", help="withdraw the trust, and keep what is known of it", kind="flag"),
    about="Where we call it by wss://, its certificate is looked at, shown and pinned: compare the fingerprint with what its"
    " operator says (openssl x509 -noout -fingerprint -sha256 -in cert.pem). From then on no other certificate is"
    " taken there, no matter who signed it; one that changed is refused, stands as an alert in postroom peers and in the log, and is"
    " taken when it is trusted again. A token that leaked ends at once when it is rotated twice.",
    examples=(
        ("postroom peers trust paris --rotate", "another token, shown once"),
        ("postroom peers trust paris --withdraw", "nothing goes there or is taken from there any more"),
    ),
    json="peer token former_pin",
    looks=True,
)
def run_peers_trust(context: Context) -> Answer:
    ways = [name for name in ("pin", "certificate", "withdraw") if name in context.values]
    if len(ways) > 1 or ("withdraw" in ways and context.get("rotate")):
        raise Usage("contradicts another option", field=f"--{ways[-1]}", hint="give only one of them")
    before = context.perform(core_peers.GetPeer)
    params = (
        {"trusted": False, "pin": None, "certificate": ""} if ways == ["withdraw"] else _trusted(context, before)
    )
    after, token = context.perform(core_peers.TrustPeer, **params), None
    if context.get("rotate"):
        made = context.perform(core_peers.RotatePeer)
        token, after = made.token, made.peer
        context.note_beside(how_to_bring(context.room.system, after.system))
    former = before.pin if before.pin and before.pin != after.pin else None
    data = {"peer": plain(after), "token": token, "former_pin": former}
    return Answer(context.name, data, secret("token", trusted))


def _trusted(context: Context, before: Peer) -> dict[str, Any]:
    """Return which certificate is trusted from now on: the named certificate, else the one that the peer's address presents."""
    if "pin" in context.values:
        pin = core_peers.check_pin(context.get("pin"), "--pin")
        return {"pin": pin, "certificate": before.certificate if pin == before.pin else ""}
    if "certificate" in context.values:
        return _pinned(read_source(context, context.get("certificate"), "--certificate"), "--certificate")
    if context.get("rotate"):
        return {}
    if before.url.startswith("wss:"):
        return _pinned(certificate_at(before.url), "url")
    if before.alert:
        raise Invalid(
            "it calls us, so its certificate cannot be looked at",
            field="--pin",
            hint=f"--certificate FILE, or --pin {before.alert} if that is its operator's",
        )
    return {}


def _pinned(pem: str, field: str) -> dict[str, Any]:
    pin = fingerprint_of_pem(pem, field)
    return {"pin": pin, "certificate": first_certificate(pem)}


@command(
    "peers remove",
    SYSTEM,
    about="Its token is invalid at once. Mail that waits for it is sent if the system is added again in time;"
    " otherwise it is dead after outbox_max_age, with a bounce.",
    examples=(("postroom peers remove paris", "gone"),),
    verb="peers.RemovePeer",
    json="removed waiting",
    looks=True,
)
def run_peers_remove(context: Context) -> Answer:
    gone = context.perform()
    _, stranded = outbox.count_waiting(context.core)
    lost = {system: many for system, many in stranded.items() if speaks_for(gone, system)}
    return Answer(context.name, {"removed": gone.system, "waiting": lost}, removed)


# -- commands about mounts


@command(
    "mount",
    Option(
        "PLACE",
        help="the room: files:FOLDER?layout=nanobot (chipset, swarm), or a room in one file",
        required=True,
        complete="files",
    ),
    Option(
        "--as",
        name="system",
        help="what the folder is called: its agents are then AGENT@NAME",
        required=True,
        metavar="NAME",
    ),
    Option(
        "--exposure",
        help="which of our agents it sees and reaches: everybody (all, the default), those it knows by name (gateway),"
        " nobody (none)",
        kind="word",
        choices=("all", "gateway", "none"),
    ),
    about="Mail goes both ways while postroom serve runs: to researcher@NAME from here, and to ann@SYSTEM from there, where SYSTEM"
    " is what this room is called. Programs there that know nothing of Postroom put their letters into a folder with that name;"
    " they are taken from it at once. Nothing is copied twice, and nothing is lost when either side is away."
    " See [folders as systems](federation.md#folders-as-systems).",
    examples=(
        ("postroom mount 'files:mail?layout=nanobot' --as nanobot", "its researcher is researcher@nanobot"),
    ),
    verb="peers.Mount",
    without=("place", "ours", "room"),
    json="peer system socket",
)
def run_mount(context: Context) -> Answer:
    place, store = absolute(context.get("place")), context.settings.store
    made = context.perform(place=place, room=store)
    return context.answer_with(made, _mounted, system=context.room.system, socket=served_at(store))


@command(
    "unmount",
    Option("NAME", name="system", help="what it was mounted as", required=True, complete="peers"),
    about="The folder stays as it is, with its mail; our agents are removed from its registry. Mail that waits for"
    " it is sent if the folder is mounted again in time; otherwise it is dead after outbox_max_age, with a"
    " bounce.",
    examples=(("postroom unmount chips", "gone"),),
    verb="peers.Unmount",
    json="removed told",
    looks=True,
)
def run_unmount(context: Context) -> Answer:
    peer = context.perform()
    return Answer(context.name, {"removed": peer.system, "told": forget(peer, context.room.system)}, _unmounted)


def _mounted(screen: Screen, data: Mapping[str, Any]) -> str:
    name, ours = one_line(data["peer"]["system"]), one_line(data["system"])
    text = f"Agents there are AGENT@{name} here, and ours are AGENT@{ours} there.\n"
    if data["socket"]:
        return text
    return f"{text}Mail waits: nobody serves this room.\n" + hint(screen, "serve", "carries it")


def _unmounted(_screen: Screen, data: Mapping[str, Any]) -> str:
    left = "" if data["told"] else "The folder could not be updated: it still names us.\n"
    return f"{one_line(data['removed'])} is not a system any more.\n{left}"

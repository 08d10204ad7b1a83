"""The commands about other systems: peers, their trust and tokens, and mail folders mounted as systems."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from getpass import getpass
from typing import TYPE_CHECKING, Any

from ..app.app import served_at
from ..core import invitations, outbox
from ..core import peers as core_peers
from ..core.verb import perform
from ..environment import AUTH_TOKEN, variable
from ..errors import Busy, Invalid, PostroomError
from ..federation.mounts import forget
from ..formats.plain import plain
from ..model.names import system_of
from ..policy.trust import speaks_for
from ..server.client import SocketClient
from ..server.tls import certificate_at, fingerprint_of_pem, first_certificate
from ..store.address import absolute
from .answer import Answer
from .command import Option, command
from .context import STDIN, note, read_source
from .errors import NOT_NOW, Usage
from .options import LIMIT
from .output import facts, hint, one_line, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model.peer import Peer
    from ..room import Room
    from .answer import Screen
    from .context import Context


SYSTEM = Option("SYSTEM", help="the name of the other system", required=True, complete="peers")


_EXPOSURES = {
    "none": "nobody",
    "gateway": "the agents that it knows by name; it gets no list",
    "all": "everybody",
}
WHERE = " --url wss://THIS-MACHINE:4650/map"  # this system does not know its own address


# -- views
_PAINT = {
    "ALERT": "red",
    "not trusted": "yellow",
    "trusted": "green",
    "connected": "green",
    "disconnected": "yellow",
}


def added(ours: str, screen: Screen, data: Mapping[str, Any]) -> str:
    system = one_line(data["peer"]["system"])
    if not data["token"]:
        return (_became(data) or f"{system} is a peer now.\n") + _next(screen, data["peer"])
    if not screen.tables:  # a file or a pipe: of the token alone
        return f"{data['token']}\n"
    text = f"{system} shows this when it calls. It is not shown again; over there it is given on standard input:\n"
    return f"{data['token']}\n\n{text}  {_there(ours, WHERE)}\n"


def _became(data: Mapping[str, Any]) -> str:
    """Return what changed about a system that was a peer before."""
    peer, changed = data["peer"], data["changed"]
    if changed is None:
        return ""
    lines = [f"  {name.replace('_', '-')}: {_value(peer, name)}{_was(data, name)}\n" for name in changed]
    system = one_line(peer["system"])
    return (
        f"{system} was a peer already. New is:\n{''.join(lines)}" if lines else f"{system} is a peer, as before.\n"
    )


def _was(data: Mapping[str, Any], name: str) -> str:
    """Return the former content of a list: a user who meant to add to it sees that the rest is gone."""
    is_gone = name in {"tags", "scopes", "relays_for"} and data["former"][name]
    return f" (it was: {_value(data['former'], name)})" if is_gone else ""


def _value(peer: Mapping[str, Any], name: str) -> str:
    if name == "token":
        return "another one, which we show there" if peer["shows_token"] else "none"
    if name == "scopes":
        return _scopes(peer) or "all"
    value = peer[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(value if isinstance(value, str) else ", ".join(value)) or "none"


def _scopes(peer: Mapping[str, Any]) -> str:
    return "; ".join(f"{ours} with {', '.join(theirs)}" for ours, theirs in peer["scopes"].items())


def how_to_bring(ours: str, system: str, where: str = "") -> str:
    """Return what to do with a token that went into a file or a pipe."""
    return f"{one_line(system)} shows this when it calls; over there: {_there(ours, where)}"


def _there(ours: str, where: str = "") -> str:
    return f"postroom peers add {one_line(ours)}{where} --token-file -"


def _next(screen: Screen, peer: Mapping[str, Any]) -> str:
    if peer["url"].startswith("wss:") and not peer["pin"]:
        return hint(screen, f"peers trust {peer['system']}", "look at its certificate, and insist on it")
    return ""


def listed(screen: Screen, data: Mapping[str, Any]) -> str:
    stranded = "".join(
        f"There is no way to {one_line(system)}: {_letters(many)} for it {'waits' if many == 1 else 'wait'}.\n"
        for system, many in data["stranded"].items()
    )
    if not data["peers"]:
        none = "No peers: mail goes to no other system, and none is taken.\n"
        return none + stranded + hint(screen, "peers add SYSTEM")
    rows = [
        (p["system"], state(p), link(p), str(p["waiting"]), p["exposure"], p["auth"], _where(p))
        for p in data["peers"]
    ]
    result = table(screen, ("SYSTEM", "STATE", "LINK", "WAITING", "EXPOSURE", "PROOF", "WHERE"), rows, _PAINT)
    return result + "".join(_alert(peer) for peer in data["peers"] if peer["alert"]) + stranded


def _where(peer: Mapping[str, Any]) -> str:
    return str(peer["url"] or peer["place"] or "calls us")


def link(peer: Mapping[str, Any]) -> str:
    """Return the state of the link; a dash where no server runs that would know it."""
    return str(peer["link"]["state"]) if peer.get("link") else "-"


def _link_whole(peer: Mapping[str, Any]) -> str:
    if not peer["link"]:
        return "nobody serves this room" if peer["trusted"] else "none"
    problem = peer["link"]["problem"]
    return f"{link(peer)}: {problem}" if problem else link(peer)


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
    if peer["alert"]:
        return "ALERT"
    return "trusted" if peer["trusted"] else "not trusted"


def whole(screen: Screen, data: Mapping[str, Any]) -> str:
    peer = data["peer"]
    sees = f"who has one of {', '.join(peer['tags'])}" if peer["exposure"] == "tagged" else ""
    pairs = [
        ("System", peer["system"]),
        ("State", state(peer)),
        ("Link", _link_whole(peer)),
        ("Waiting", _letters(peer["waiting"])),
        ("Where", peer["url"] or peer["place"] or "it calls us"),
        ("Proof", _proof(peer)),
        ("Certificate", peer["pin"] or ("as the machine's authorities say" if peer["url"][:4] == "wss:" else "")),
        ("Reaches of ours", sees or _EXPOSURES[peer["exposure"]]),
        ("Scopes", _scopes(peer) or "all"),
        ("Speaks for", ", ".join([peer["system"], *peer["relays_for"]])),
        ("Through us", "reaches further systems" if peer["relays_to"] else "reaches no further system"),
        ("From", "the file of peers" if peer["of_file"] else ""),
    ]
    return facts(screen, pairs) + (_alert(peer) if peer["alert"] else "")


def _proof(peer: Mapping[str, Any]) -> str:
    if peer["auth"] in {"mtls", "none"}:
        return str(peer["auth"])
    parts = [
        *(["we show a token"] if peer["shows_token"] else []),
        *(["it shows one"] if peer["knows_token"] else []),
        *([f"the one before is good until {peer['former_until']}"] if peer["former_until"] else []),
    ]
    return f"{peer['auth']}: {', '.join(parts)}"


def trusted(screen: Screen, data: Mapping[str, Any]) -> str:
    peer = data["peer"]
    if data["token"] and not screen.tables:  # a file or a pipe: of the token alone
        return f"{data['token']}\n"
    if data["token"]:
        text = "It is not shown again. The one before is good until this one was shown, or for a day.\n"
        return f"{data['token']}\n\nThe new token of {one_line(peer['system'])}. {text}"
    if not peer["trusted"]:
        return f"{one_line(peer['system'])} is not trusted any more.\n"
    was = f"It was {data['former_pin']}.\n" if data["former_pin"] else ""
    if not peer["pin"]:
        return f"{one_line(peer['system'])} is trusted.\n"
    text = f"{one_line(peer['system'])} is trusted, with this certificate alone:\n  {peer['pin']}\n"
    question = f"Compare it with what its operator says. openssl writes it so:\n  {_as_openssl(peer['pin'])}\n"
    return text + was + question * (not peer["of_file"])


def _as_openssl(pin: str) -> str:
    digits = pin.removeprefix("sha256:").upper()
    return ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))


def invited(screen: Screen, data: Mapping[str, Any]) -> str:
    if not screen.tables:  # a file or a pipe: of the invitation alone
        return f"{data['invitation']}\n"
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
    text = f"{one_line(data['removed'])} is no peer any more.\n"
    for system, many in data["waiting"].items():
        text += f"Waiting for {one_line(system)}: {_letters(many)}. There is no way there now; if none is added"
        text += " before outbox_max_age has passed, they are dead, and their senders get bounces.\n"
    return text


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
    json="invitation peer url",
)
def run_peers_invite(context: Context) -> Answer:
    url, pin = _our_address(context)
    request = invitations.InvitePeer(system=context.get("system"), url=url, pin=pin)
    made = context.act_in_room(lambda room: perform(room.core, room.principal, request))
    if not context.screen.tables:
        note(context.call, _how_to_join(made.peer.system, url))
    return Answer(context.name, {"invitation": made.invitation, "peer": plain(made.peer), "url": url}, invited)


def _our_address(context: Context) -> tuple[str, str]:
    """Return our address, and the fingerprint of our certificate there."""
    if "url" in context.values:
        file = context.get("certificate")
        pem = read_source(context, file, "--certificate") if file else ""
        return context.get("url"), fingerprint_of_pem(pem, "--certificate") if pem else ""
    if "certificate" in context.values:
        raise Usage("goes with --url", field="--certificate", hint="the running postroom serve knows its own")
    address = _ask(context, "links").get("address") or {}
    if not address:
        hint = "--url wss://THIS-MACHINE:4650 --certificate FILE, or postroom serve with --http and --http-name"
        raise Invalid("postroom serve does not know where others reach it", field="--url", hint=hint)
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
    json="peer system changed",
)
def run_peers_join(context: Context) -> Answer:
    source = context.get("invitation") or STDIN
    text = _secret(context, STDIN, "invitation", "The invitation: ") if source == STDIN else source
    request = invitations.JoinPeer(invitation=text)
    found = context.act_in_room(lambda room: perform(room.core, room.principal, request))
    data = {"peer": plain(found.peer), "system": found.system, "changed": found.is_new}
    return Answer(context.name, data, joined)


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
        help="which of our agents it sees and reaches: nobody (none), those it knows by name (gateway, the default), who"
        " has a tag (tagged), everybody (all)",
        kind="word",
        choices=("none", "gateway", "tagged", "all"),
    ),
    Option(
        "--tag",
        help="with tagged: a scope or tag of those it sees and reaches",
        many=True,
        metavar="NAME",
        complete="scopes",
    ),
    Option(
        "--scope",
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
    args = context.passed_options("url", "auth", "exposure")
    lists = {name: word for name, word in _LISTS.items() if word in context.values}
    args |= {name: tuple(one for one in context.get(word) if one) for name, word in lists.items()}
    if "scope" in context.values:
        args["scopes"] = _scope_rules(context.get("scope"))
    if "relays_to" in context.values:
        args["relays_to"] = context.get("relays_to") == "yes"
    if "token_file" in context.values:
        args["token"] = _token(context)
    before, token, peer = context.act_in_room(partial(_add, context.get("system"), args))
    if token and not context.screen.tables:
        note(context.call, how_to_bring(context.room.system, peer.system, WHERE))
    changed = None if before is None else _changed(before, peer)
    former = {name: plain(before)[name] for name in changed or () if before is not None and name != "token"}
    data = {"peer": plain(peer), "token": token or None, "changed": changed, "former": former}
    return Answer(context.name, data, partial(added, context.room.system))


_LISTS = {"tags": "tag", "relays_for": "relays_for"}
_CHANGEABLE = ("url", "auth", "token", "exposure", "tags", "scopes", "relays_for", "relays_to")


def _token(context: Context) -> str:
    question = f"The token that {context.get('system')!a} showed for us: "
    return _secret(context, context.get("token_file"), "--token-file", question)


def _secret(context: Context, source: str, field: str, question: str) -> str:
    """Return the first line of a file or of standard input. At a terminal it is typed without echo."""
    is_typed = source == STDIN and sys.stdin is not None and sys.stdin.isatty()
    text = _typed(question) if is_typed else read_source(context, source, field)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise Invalid("is empty", field=field, hint="what postroom peers invite, or peers add, showed over there")
    return lines[0]


def _typed(question: str) -> str:
    try:
        return getpass(question)
    except EOFError:  # Ctrl-D
        return ""


def _add(system: str, args: dict[str, Any], room: Room) -> tuple[Peer | None, str, Peer]:
    before = core_peers.peer(room.core, system)
    request = core_peers.AddPeer(system=system, fields=args, ours=room.system)
    made = perform(room.core, room.principal, request)
    return before, made.token, made.peer


def _changed(before: Peer, after: Peer) -> list[str]:
    return [name for name in _CHANGEABLE if getattr(before, name) != getattr(after, name)]


def _scope_rules(rules: list[tuple[str, str] | None]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for ours, theirs in filter(None, rules):
        found[ours] = (*found.get(ours, ()), theirs)
    return found


@command(
    "peers",
    LIMIT,
    examples=(("postroom peers", "who they are"),),
    json="system peers stranded",
    looks=True,
)
def run_peers_list(context: Context) -> Answer:
    found = perform(context.room.core, context.room.principal, core_peers.ListPeers())
    links = _links(context) if found else {}
    waiting, stranded = outbox.count_waiting(context.room.core)
    peers = [plain(peer) | _now(peer, links, waiting) for peer in found]
    result = {"system": context.room.system, "peers": peers, "stranded": stranded}
    return Answer(context.name, result, listed)


def _now(peer: Peer, links: dict[str, Any], waiting: dict[str, int]) -> dict[str, Any]:
    return {"link": links.get(peer.system), "waiting": waiting.get(peer.system, 0)}


def _links(context: Context) -> dict[str, Any]:
    """Return the links of the room's server by system; nothing where no server answers."""
    with suppress(PostroomError):
        return {link.pop("system"): link for link in _ask(context, "links")["links"]}
    return {}


def why_it_waits(context: Context, mailbox: str) -> str | None:
    """Return why a letter for another system still waits: no server runs, or the link is down; else None."""
    core = context.room.core
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
    if "system" in context.values:
        result = _ask(context, "ping_peer", system=_known(context).system)
        return Answer(context.name, result, pinged, code=0 if result["answers"] else NOT_NOW)
    found = perform(context.room.core, context.room.principal, core_peers.ListPeers())
    every = [_ask(context, "ping_peer", system=peer.system) for peer in found]
    is_well = all(result["answers"] for result in every)
    return Answer(context.name, {"peers": every}, all_pinged, code=0 if is_well else NOT_NOW)


def _ask(context: Context, action: str, **args: Any) -> Any:
    """Send a request to the room's server, which alone has links."""
    path = served_at(context.room.settings.store)
    if path is None:
        raise Busy("nobody serves this room, so it has no links to others", field="room", hint="postroom serve")
    return SocketClient(path, token=variable(AUTH_TOKEN), patience=0.5).ask(action, args)


@command(
    "peers show",
    SYSTEM,
    examples=(("postroom peers show paris", "one of them"),),
    json="peer",
    looks=True,
)
def run_peers_show(context: Context) -> Answer:
    peer = _known(context)
    waiting, _ = outbox.count_waiting(context.room.core)
    result = plain(peer) | _now(peer, _links(context), waiting)
    return Answer(context.name, {"peer": result}, whole)


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
        raise Usage("says two things at once", field=f"--{ways[-1]}", hint="one of them")
    before = _known(context)
    core, caller = context.room.core, context.room.principal
    args = {"trusted": False} if "withdraw" in ways else _trusted(context, before)
    after = perform(core, caller, core_peers.TrustPeer(system=before.system, **args))
    token = None
    if context.get("rotate"):
        made = perform(core, caller, core_peers.RotatePeer(system=before.system))
        token, after = made.token, made.peer
        if not context.screen.tables:
            note(context.call, how_to_bring(context.room.system, after.system))
    former = before.pin if before.pin and before.pin != after.pin else None
    return Answer(context.name, {"peer": plain(after), "token": token, "former_pin": former}, trusted)


def _trusted(context: Context, before: Peer) -> dict[str, Any]:
    """Return which certificate is trusted from now on: the named certificate, else the one that the peer's address presents."""
    if "pin" in context.values:
        pin = core_peers.check_pin(context.get("pin"), "--pin")
        kept = before.certificate if pin == before.pin else ""
        return {"pin": pin, "certificate": kept}
    if "certificate" in context.values:
        return _pinned(read_source(context, context.get("certificate"), "--certificate"), "--certificate")
    if context.get("rotate"):
        return {}
    if before.url.startswith("wss:"):
        return _pinned(certificate_at(before.url), "url")
    if before.alert:
        hint = f"--certificate FILE, or --pin {before.alert} if that is its operator's"
        raise Invalid("it calls us, so its certificate cannot be looked at", field="--pin", hint=hint)
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
    json="removed waiting",
    looks=True,
)
def run_peers_remove(context: Context) -> Answer:
    core = context.room.core
    gone = perform(core, context.room.principal, core_peers.RemovePeer(system=context.get("system")))
    _, stranded = outbox.count_waiting(core)
    lost = {system: many for system, many in stranded.items() if speaks_for(gone, system)}
    return Answer(context.name, {"removed": gone.system, "waiting": lost}, removed)


def _known(context: Context) -> Peer:
    request = core_peers.GetPeer(system=context.get("system"))
    return perform(context.room.core, context.room.principal, request)


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
        "--as", help="what the folder is called: its agents are then AGENT@NAME", required=True, metavar="NAME"
    ),
    Option(
        "--exposure",
        help="which of our agents it sees and reaches: everybody (all, the default), those it knows by name (gateway),"
        " nobody (none)",
        kind="word",
        choices=("all", "gateway", "none"),
        default="all",
    ),
    about="Mail goes both ways while postroom serve runs: to researcher@NAME from here, and to ann@SYSTEM from there, where SYSTEM"
    " is what this room is called. Programs there that know nothing of Postroom put their letters into a folder with that name;"
    " they are taken from it at once. Nothing is copied twice, and nothing is lost when either side is away."
    " See [folders as systems](federation.md#folders-as-systems).",
    examples=(
        ("postroom mount 'files:mail?layout=nanobot' --as nanobot", "its researcher is researcher@nanobot"),
    ),
    json="peer system socket",
)
def run_mount(context: Context) -> Answer:
    place = absolute(context.get("place"))
    peer = context.act_in_room(partial(_mount, context, place))
    data = {
        "peer": plain(peer),
        "system": context.room.system,
        "socket": served_at(context.settings.store),
    }
    return Answer(context.name, data, _mounted)


def _mount(context: Context, place: str, room: Room) -> Peer:
    request = core_peers.Mount(
        system=context.get("as"),
        place=place,
        exposure=context.get("exposure", "all"),
        ours=room.system,
        room=context.settings.store,
    )
    return perform(room.core, room.principal, request)


@command(
    "unmount",
    Option("NAME", help="what it was mounted as", required=True, complete="peers"),
    about="The folder stays as it is, with its mail; our agents are removed from its registry. Mail that waits for"
    " it is sent if the folder is mounted again in time; otherwise it is dead after outbox_max_age, with a"
    " bounce.",
    examples=(("postroom unmount chips", "gone"),),
    json="removed told",
    looks=True,
)
def run_unmount(context: Context) -> Answer:
    request = core_peers.Unmount(system=context.get("name"))
    peer = perform(context.room.core, context.room.principal, request)
    result = forget(peer, context.room.system)
    return Answer(context.name, {"removed": peer.system, "told": result}, _unmounted)


def _mounted(screen: Screen, data: Mapping[str, Any]) -> str:
    name, ours = one_line(data["peer"]["system"]), one_line(data["system"])
    text = f"Agents there are AGENT@{name} here, and ours are AGENT@{ours} there.\n"
    if data["socket"]:
        return text
    return f"{text}Mail waits: nobody serves this room.\n" + hint(screen, "serve", "carries it")


def _unmounted(_screen: Screen, data: Mapping[str, Any]) -> str:
    left = "" if data["told"] else "The folder could not be updated: it still names us.\n"
    return f"{one_line(data['removed'])} is no system any more.\n{left}"

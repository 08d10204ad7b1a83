"""The commands about other systems: peers, their trust and tokens, and mail folders mounted as systems."""

from __future__ import annotations

import sys
from contextlib import suppress
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
from .command import LIMIT, Option, command
from .errors import NOT_NOW
from .output import hint, in_words, listing, moment, one_line, record, says, secret
from .text import STDIN, read_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model.peer import Peer
    from .answer import Answer, Screen
    from .context import Context
    from .output import View


SYSTEM = Option("SYSTEM", help="the name of the other system", required=True, complete="peers")
_TO_JOIN = (
    "It is a secret, and not shown again: whoever has it joins. Over there: postroom peers join, with this on standard"
    " input; then it calls"
)
WHERE = " --url wss://THIS-MACHINE:4650/map"  # this system does not know its own address


# -- views


def _there(ours: str, where: str = "") -> str:
    """Return what to do over there with the token that a system needs."""
    return f"shows this when it calls. It is not shown again; over there: postroom peers add {ours}{where} --token-file -"


def _scopes(peer: Mapping[str, Any]) -> str:
    return "; ".join(f"{ours} with {', '.join(theirs)}" for ours, theirs in peer["scopes"].items())


def _letters(many: int) -> str:
    return "1 letter" if many == 1 else f"{many} letters"


def _state(_screen: Screen, peer: Mapping[str, Any]) -> str:
    return "ALERT" if peer["alert"] else "trusted" if peer["trusted"] else "not trusted"


def _where(_screen: Screen, peer: Mapping[str, Any]) -> str:
    return peer["url"] or peer["place"] or "it calls us"


_alert = says(
    "ALERT: {system} came with another certificate, {alert}, and was refused. If its operator changed it:"
    " postroom peers trust {system}. Else this is another machine.",
)
_listing = listing(
    "peers",
    {
        "SYSTEM": "system",
        "STATE": _state,
        "LINK": "link.state",
        "WAITING": "waiting",
        "EXPOSURE": "exposure",
        "PROOF": "auth",
        "WHERE": _where,
    },
    "No peers: mail goes to no other system, and none is taken.",
    first="peers add SYSTEM",
    paint={
        "ALERT": "red",
        "not trusted": "yellow",
        "trusted": "green",
        "connected": "green",
        "disconnected": "yellow",
    },
)


def _listed(screen: Screen, data: Mapping[str, Any]) -> str:
    stranded = "".join(
        f"There is no way to {one_line(system)}: {_letters(many)} for it {'waits' if many == 1 else 'wait'}.\n"
        for system, many in data["stranded"].items()
    )
    return _listing(screen, data) + "".join(_alert(screen, peer) for peer in data["peers"]) + stranded


_facts = record(
    {
        "System": "system",
        "State": _state,
        "Link": lambda _, peer: peer["link"]["state"] if peer["link"] else "nobody serves this room",
        "Problem": "link.problem",
        "Waiting": lambda _, peer: _letters(peer["waiting"]),
        "Where": _where,
        "Proof": "auth",
        "We show a token": "shows_token",
        "It shows a token": "knows_token",
        "Its former token": lambda _, peer: (
            f"good until {moment(peer['former_until'])}" if peer["former_until"] else ""
        ),
        "Certificate": "pin",
        "Reaches": lambda _, peer: (
            f"agents with one of {', '.join(peer['tags'])}" if peer["tags"] else peer["exposure"]
        ),
        "Scopes": lambda _, peer: _scopes(peer) or "all",
        "Speaks for": lambda _, peer: ", ".join([peer["system"], *peer["relays_for"]]),
        "Reaches others through us": "relays_to",
        "From the file of peers": "of_file",
    },
    "peer",
)


def _whole(screen: Screen, data: Mapping[str, Any]) -> str:
    return _facts(screen, data) + _alert(screen, data["peer"])


_PINGED = ("{system} answers in {seconds:.3f} s.", "{system} is {state}: {problem}", "What to do: {hint}")
_nobody = says("No peers: there is nobody to ask.", "$ peers add SYSTEM")


def _changed(screen: Screen, data: Mapping[str, Any]) -> str:
    """Show a peer that was added, and of one that was there what is new."""
    peer, changed = data["peer"], data["changed"]
    how = "is a peer now." if changed is None else "is a peer, as before."
    how = "was a peer already. New is:" if changed else how
    rows = [f"  {name.replace('_', '-')}: {_of(peer, name)}{_was(data, name)}\n" for name in changed or ()]
    trust = (
        []
        if peer["pin"] or not peer["url"].startswith("wss:")
        else [hint(screen, f"peers trust {peer['system']}", "look at its certificate, and insist on it")]
    )
    return "".join([f"{one_line(peer['system'])} {how}\n", *rows, *trust])


def _was(data: Mapping[str, Any], name: str) -> str:
    """Return the former content of a list: a user who meant to add to it sees that the rest is gone."""
    is_gone = name in {"tags", "scopes", "relays_for"} and data["former"][name]
    return f" (it was: {_of(data['former'], name)})" if is_gone else ""


def _of(peer: Mapping[str, Any], name: str) -> str:
    if name == "token":
        return "another one, which we show there" if peer["shows_token"] else "none"
    text = _scopes(peer) if name == "scopes" else in_words(peer[name])
    return one_line(text) or "none"


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
        needs="url",
    ),
    about="Two commands link two systems: this one on the system that is called, and postroom peers join on the one"
    " that calls. The invitation holds our name, our address, a new token and the fingerprint of our certificate."
    " It is a secret: whoever has it can join as that system. Into a file or a pipe it is printed alone. It stays"
    " good for that one system; inviting it again makes another token, and the old one is good until the new one"
    " was used, or for a day. What the peer may do is changed by postroom peers add.",
    examples=(("postroom peers invite paris --url wss://mail.example.com:4650", "it joins by what is printed"),),
    verb="peers.InvitePeer",
    without=("pin",),
    view=secret("invitation", f"{_TO_JOIN} {{url}}"),
    json="invitation peer url",
)
def run_peers_invite(context: Context) -> Answer:
    url, pin = _our_address(context)
    made = context.perform(url=url, pin=pin)
    return context.answer_with(made, url=url)


def _our_address(context: Context) -> tuple[str, str]:
    """Return our address, and the fingerprint of our certificate there."""
    if "url" in context.values:
        file = context.get("certificate")
        pem = read_source(context, file, "--certificate") if file else ""
        return context.get("url"), fingerprint_of_pem(pem, "--certificate") if pem else ""
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
    shape=lambda _, found: {"peer": found.peer, "system": found.system, "changed": found.is_new},
    view=says(
        "{peer.system} is a peer. This room is called {system} there.",
        "Its certificate alone is taken: {peer.pin}",
        "$ peers ping {peer.system}  # check that it answers; needs postroom serve",
    ),
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
    changed = former = None
    if before is not None:
        changed = [name for name in _CHANGEABLE if getattr(before, name) != getattr(after, name)]
        former = {name: plain(before)[name] for name in changed if name != "token"}
    data = {"peer": after, "token": made.token or None, "changed": changed, "former": former or {}}
    view = secret("token", f"{{peer.system}} {_there(ours, WHERE)}") if made.token else _changed
    return context.shown(data, view)


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
    view=_listed,
    json="system peers stranded",
    looks=True,
)
def run_peers_list(context: Context) -> Answer:
    found = context.perform()
    _, stranded = outbox.count_waiting(context.core)
    return context.shown(
        {"system": context.room.system, "peers": _with_links(context, found), "stranded": stranded}
    )


def _with_links(context: Context, peers: list[Peer]) -> list[dict[str, Any]]:
    """Return peers as JSON, each with the state of its link, if a server knows it, and the letters that wait."""
    links = _links(context) if peers else {}
    waiting, _ = outbox.count_waiting(context.core)
    return [
        plain(peer, times=True) | {"link": links.get(peer.system), "waiting": waiting.get(peer.system, 0)}
        for peer in peers
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
        return context.shown(every[0], says(*_PINGED), code=code)
    return context.shown({"peers": every}, says(*_PINGED, each="peers") if every else _nobody, code=code)


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
    view=_whole,
    looks=True,
)


@command(
    "peers trust",
    SYSTEM,
    Option(
        "--pin",
        help="the certificate with this fingerprint, without a look at it",
        metavar="SHA256",
        against=("certificate", "withdraw"),
    ),
    Option(
        "--certificate",
        help="the certificate in this file (PEM); one that calls us by mtls needs that",
        metavar="FILE",
        complete="files",
        against=("withdraw",),
    ),
    Option(
        "--rotate",
        help="make a new token for it to show here; the old one is good until the new one was shown for the first"
        " time, or for a day",
        kind="flag",
    ),
    Option(
        "--withdraw", help="withdraw the trust, and keep what is known of it", kind="flag", against=("rotate",)
    ),
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
    before = context.perform(core_peers.GetPeer)
    params = (
        {"trusted": False, "pin": None, "certificate": ""}
        if context.get("withdraw")
        else _trusted(context, before)
    )
    after, token = context.perform(core_peers.TrustPeer, **params), None
    if context.get("rotate"):
        made = context.perform(core_peers.RotatePeer)
        token, after = made.token, made.peer
    former = before.pin if before.pin and before.pin != after.pin else None
    view = secret("token", f"{{peer.system}} {_there(context.room.system)}") if token else _trust(after)
    return context.shown({"peer": after, "token": token, "former_pin": former}, view)


def _trust(peer: Peer) -> View:
    """Return the view of a peer whose trust was given or withdrawn."""
    if not peer.trusted:
        return says("{peer.system} is not trusted any more.")
    digits = peer.pin.removeprefix("sha256:").upper()
    openssl = ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))
    compare = ("Compare it with what its operator says. openssl writes it so:", f"  {openssl}")
    return says(
        "{peer.system} is trusted.",
        "Its certificate alone is taken: {peer.pin}",
        "It was {former_pin}.",
        *(compare if peer.pin and not peer.of_file else ()),
    )


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
    return context.shown({"removed": gone.system, "waiting": lost}, _removed)


def _removed(_screen: Screen, data: Mapping[str, Any]) -> str:
    waiting = "".join(
        f"Waiting for {one_line(system)}: {_letters(many)}. There is no way there now; if none is added before"
        " outbox_max_age has passed, they are dead, and their senders get bounces.\n"
        for system, many in data["waiting"].items()
    )
    return f"{one_line(data['removed'])} is not a peer any more.\n{waiting}"


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
    made, served = context.perform(place=place, room=store), served_at(store)
    waits = () if served else ("Mail waits: nobody serves this room.", "$ serve  # carries it")
    view = says("Agents there are AGENT@{peer.system} here, and ours are AGENT@{system} there.", *waits)
    return context.answer_with(made, view, system=context.room.system, socket=served)


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
    told = forget(peer, context.room.system)
    left = () if told else ("The folder could not be updated: it still names us.",)
    return context.shown(
        {"removed": peer.system, "told": told}, says("{removed} is not a system any more.", *left)
    )

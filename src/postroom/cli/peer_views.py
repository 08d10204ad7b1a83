"""How other systems are shown to people: a list, one of them whole, what became of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .escape import one_line
from .tables import facts, hint, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answers import Screen

_EXPOSURES = {
    "none": "nobody",
    "gateway": "whom it knows by name; it is told of nobody",
    "all": "everybody",
}
WHERE = " --url wss://THIS-MACHINE:4650/map"  # what we do not know of ourselves
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
    told = f"{system} shows this when it calls. It is not shown again; over there it is given on standard input:\n"
    return f"{data['token']}\n\n{told}  {_there(ours, WHERE)}\n"


def _became(data: Mapping[str, Any]) -> str:
    """What is new about one that was a peer before."""
    peer, changed = data["peer"], data["changed"]
    if changed is None:
        return ""
    lines = [f"  {name.replace('_', '-')}: {_value(peer, name)}{_was(data, name)}\n" for name in changed]
    system = one_line(peer["system"])
    return (
        f"{system} was a peer already. New is:\n{''.join(lines)}" if lines else f"{system} is a peer, as before.\n"
    )


def _was(data: Mapping[str, Any], name: str) -> str:
    """What a list replaced: whoever meant to add to it would not see that the rest is gone."""
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
    """Beside a token that went into a file or a pipe."""
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
    told = table(screen, ("SYSTEM", "STATE", "LINK", "WAITING", "EXPOSURE", "PROOF", "WHERE"), rows, _PAINT)
    return told + "".join(_alert(peer) for peer in data["peers"] if peer["alert"]) + stranded


def _where(peer: Mapping[str, Any]) -> str:
    return str(peer["url"] or peer["place"] or "calls us")


def link(peer: Mapping[str, Any]) -> str:
    """Where nobody serves the room, nobody knows."""
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
    told = f"{system} is {one_line(data['state'])}: {one_line(data['problem'] or '')}\n"
    return told + (f"What to do: {one_line(data['hint'])}\n" if data["hint"] else "")


def all_pinged(screen: Screen, data: Mapping[str, Any]) -> str:
    none = "No peers: there is nobody to ask.\n" + hint(screen, "peers add SYSTEM")
    return "".join(pinged(screen, told) for told in data["peers"]) or none


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
        ("Through us", "reaches further systems" if peer["relays_to"] else "reaches nobody else"),
        ("From", "the file of peers" if peer["of_file"] else ""),
    ]
    return facts(screen, pairs) + (_alert(peer) if peer["alert"] else "")


def _proof(peer: Mapping[str, Any]) -> str:
    if peer["auth"] in {"mtls", "none"}:
        return str(peer["auth"])
    said = [
        *(["we show a token"] if peer["shows_token"] else []),
        *(["it shows one"] if peer["knows_token"] else []),
        *([f"the one before is good until {peer['former_until']}"] if peer["former_until"] else []),
    ]
    return f"{peer['auth']}: {', '.join(said)}"


def trusted(screen: Screen, data: Mapping[str, Any]) -> str:
    peer = data["peer"]
    if data["token"] and not screen.tables:  # a file or a pipe: of the token alone
        return f"{data['token']}\n"
    if data["token"]:
        told = "It is not shown again. The one before is good until this one was shown, or for a day.\n"
        return f"{data['token']}\n\nThe new token of {one_line(peer['system'])}. {told}"
    if not peer["trusted"]:
        return f"{one_line(peer['system'])} is not trusted any more.\n"
    was = f"It was {data['former_pin']}.\n" if data["former_pin"] else ""
    if not peer["pin"]:
        return f"{one_line(peer['system'])} is trusted.\n"
    told = f"{one_line(peer['system'])} is trusted, with this certificate alone:\n  {peer['pin']}\n"
    asked = f"Compare it with what its operator says. openssl writes it so:\n  {_as_openssl(peer['pin'])}\n"
    return told + was + asked * (not peer["of_file"])


def _as_openssl(pin: str) -> str:
    digits = pin.removeprefix("sha256:").upper()
    return ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))


def removed(_screen: Screen, data: Mapping[str, Any]) -> str:
    told = f"{one_line(data['removed'])} is no peer any more.\n"
    for system, many in data["waiting"].items():
        told += f"Waiting for {one_line(system)}: {_letters(many)}. There is no way there now; if none is added"
        told += " before outbox_max_age has passed, they are dead, and their senders are told.\n"
    return told


def _alert(peer: Mapping[str, Any]) -> str:
    system = one_line(peer["system"])
    told = f"\nALERT: {system} came with another certificate, {peer['alert']}, and was refused.\n"
    return f"{told}If its operator changed it: postroom peers trust {system}. Else somebody stands in between.\n"

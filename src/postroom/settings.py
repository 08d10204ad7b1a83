"""Settings: one frozen object with every setting of a room.

Defaults ← config file ← the room of the project around us ← environment `POSTROOM_*` ← arguments. Only this module
reads the config file and knows what the variables mean. An unknown setting is refused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from .environment import PREFIX, config_path, own_room, project_room
from .environment import environment as own_environment
from .errors import BadStore, Invalid
from .model.names import POSTMASTER, fold
from .policy.limits import Limits, Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping


class Settings(Limits, frozen=True, kw_only=True):
    """All settings of a room, as opened."""

    store: str = ""  # a store's address; empty means the user's own room
    durability: Literal["power", "process"] = "power"  # what an acknowledged letter survives
    file_root: str = "."  # files that postroom.file and --file enclose must lie below this folder
    system: str = ""  # what this room is called among others; empty means a name made once and kept
    human_key: str = ""  # the file of the person's private key, if it is not the usual one
    busy_timeout: Seconds = 30.0  # seconds to wait for another process before StoreBusy


_HINTS = {
    "durability": "power or process",
    "unknown": "accept or refuse",
    "ladder": "names, with commas",
    "human": "an agent's name",
    "people": "agents' names, with commas",
    "federation_strategy": "table, broadcast or hierarchical",
    "federation_upstream": "systems, with commas",
    "outbox_retry": "exponential or fixed",
}

# Defaults that differ in the server, where a flood from one agent would fill the inboxes of all.
SERVICE_DEFAULTS: dict[str, Any] = {"sender_rate": 100}

NO_SUCH_SETTING = "there is no such setting"

# Settings of the agent-inbox design that have only one meaning here. Values that state it are accepted; any other
# would be a promise that is not kept. Name: accepted values, message, hint.
_ONE_MEANING: dict[str, tuple[frozenset[str], str, str]] = {
    "outbox_overflow": (
        frozenset({"refuse", "reject-new"}),
        "mail that was accepted is never dropped; a full outbox refuses what is new",
        "reject-new, or leave it out; outbox_max_letters says how many may wait",
    ),
    "outbox_persistence": (
        frozenset({"room", "sqlite"}),
        "mail for other systems waits in the room itself, and survives restarts",
        "leave it out; a room at memory: forgets all of its mail alike",
    ),
    "outbox_flush_on_reconnect": (
        frozenset({"true"}),
        "what waits goes out as soon as the other system is there again",
        "leave it out; postroom peers trust SYSTEM --withdraw stops all mail to one",
    ),
    "federation_require_auth": (
        frozenset({"true"}),
        "every peer proves itself",
        "leave it out; postroom peers add --auth none is for one on this machine",
    ),
    "federation_auth_method": (
        frozenset(),
        "each peer proves itself in its own way, and did:wba is none of them",
        "postroom peers add SYSTEM --auth bearer, api-key or mtls",
    ),
    "federation_allowed_servers": (
        frozenset(),
        "the peers themselves are the allow-list; without any, it is nobody",
        "postroom peers add SYSTEM, or a table in peers.toml",
    ),
    "federation_scope_permissions": (
        frozenset(),
        "each peer has its own",
        "postroom peers add SYSTEM --scope OURS=THEIRS, or scopes in peers.toml",
    ),
}


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings in force: arguments beat the environment, which beats the config file.

    `defaults` replace those of the library.
    """
    environment = own_environment() if environment is None else dict(environment)
    values: dict[str, Any] = dict(defaults or {}) | _from_file(config_path(environment))
    fields = _from_environment(environment)
    # None is an argument that the caller left out, not a value that beats the environment.
    fields |= {name: value for name, value in (arguments or {}).items() if value is not None}
    if not fields.get("store") and (room := project_room()):
        if not os.path.lexists(room):  # its mail must not go elsewhere
            raise BadStore(
                f"the project's room {room} is gone", field="store", hint="postroom init makes a new one"
            )
        fields["store"] = f"sqlite:{room}"
    return _checked(values | fields)


def chosen_settings(
    store: str | os.PathLike[str] | None, settings: dict[str, Any], defaults: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings in force for a room opened like this. `defaults` replace those of the library."""
    address = f"sqlite:{os.fspath(store)}" if isinstance(store, os.PathLike) else store
    chosen = load_settings({"store": address, **settings}, defaults=defaults)
    return chosen if chosen.store else replace(chosen, store=f"sqlite:{default_room()}")


def default_room() -> str:
    """Return the path of the user's own room, which is used where no other is named."""
    return own_room(own_environment())


def _from_file(path: str) -> dict[str, Any]:
    if not os.path.exists(path):
        return {}
    import tomllib  # noqa: PLC0415 - most users have no such file

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError) as broken:
        raise Invalid(f"cannot be read: {broken}", field=path, hint="correct or remove it") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {PREFIX + name.upper(): name for name in (*Settings.__struct_fields__, *_ONE_MEANING)}
    return {names[variable]: value for variable, value in environment.items() if variable in names}


def misspelt(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables that nothing reads, with the setting that each was probably meant for."""
    from difflib import get_close_matches  # noqa: PLC0415 - only the doctor needs it

    environment = own_environment() if environment is None else dict(environment)
    known = [PREFIX + name.upper() for name in Settings.__struct_fields__]
    likely = {
        name: get_close_matches(name.upper(), known, 1, 0.85)
        for name in sorted(environment)
        if name.upper().startswith(PREFIX) and name not in known
    }
    return {name: meant[0] for name, meant in likely.items() if meant}


def _checked(values: dict[str, Any]) -> Settings:
    for name, value in values.items():
        if name not in Settings.__struct_fields__ and name not in _ONE_MEANING:
            raise _unknown(name, value)
    try:
        return _check_combinations(msgspec.convert(_without_one_meaning(values), Settings, strict=False))
    except msgspec.ValidationError as broken:
        what, _, name = str(broken).partition(" - at `$.")
        field = name.strip("`") or "settings"
        raise Invalid(what, field=field, hint=_HINTS.get(field, "postroom rooms --settings shows all")) from None


def _unknown(name: str, value: Any) -> Invalid:
    flat = [known for known in Settings.__struct_fields__ if known.startswith(f"{name}_")]
    if flat and isinstance(value, dict):
        hint = f"one line each, without a table: {', '.join(flat)}"
        return Invalid("there are no tables of settings", field=name, hint=hint)
    return Invalid(NO_SUCH_SETTING, field=name, hint=", ".join(Settings.__struct_fields__))


def _without_one_meaning(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without those of one meaning; refuse any of these with another value."""
    for name, (accepted, reason, hint) in _ONE_MEANING.items():
        if name in values and str(values[name]).lower() not in accepted:
            raise Invalid(f"{values[name]!a} would not be kept: {reason}", field=name, hint=hint)
    return {name: value for name, value in values.items() if name not in _ONE_MEANING}


def _check_combinations(settings: Settings) -> Settings:
    """Refuse combinations in which a setting would do nothing, and the postmaster's name for the human."""
    if fold(settings.human) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} is reserved for notices of the room", field="human", hint=_HINTS["human"])
    is_upward = settings.federation_strategy == "hierarchical"
    if is_upward and not settings.federation_upstream:
        raise Invalid(
            "hierarchical needs a system above this one",
            field="federation_strategy",
            hint="federation_upstream = a hub that is a peer, or another strategy",
        )
    if settings.federation_upstream and not is_upward:
        raise Invalid(
            f"nothing is left to hubs with the strategy {settings.federation_strategy}",
            field="federation_upstream",
            hint="federation_strategy = hierarchical, or leave it out",
        )
    return settings

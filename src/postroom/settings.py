"""One frozen object with every setting. The only place that reads the config file and says what variables mean.

Defaults ← config file ← the room of the project around us ← environment `POSTROOM_*` ← arguments. A setting nobody
knows is refused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .errors import BadStore, Invalid
from .policy.limits import Limits, Seconds
from .whereabouts import PREFIX, config_path, own_room, project_room
from .whereabouts import environment as own_environment

if TYPE_CHECKING:
    from collections.abc import Mapping


class Settings(Limits, frozen=True, kw_only=True):
    """All settings of a room, as opened."""

    store: str = ""  # a store's address; empty means the user's own room
    durability: Literal["power", "process"] = "power"  # what an acknowledged letter survives
    file_root: str = "."  # files enclosed in letters must lie below this folder
    system: str = ""  # what this room is called among others; empty means a name made once and kept
    busy_timeout: Seconds = 30.0  # seconds to wait for another process before StoreBusy


_WORDS = {"durability": "power or process", "unknown": "accept or refuse", "ladder": "names, with commas"}


def load_settings(
    arguments: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings in force: arguments beat the environment, which beats the config file."""
    environment = own_environment() if environment is None else environment
    given: dict[str, Any] = _from_file(config_path(environment))
    said = _from_environment(environment)
    said |= {name: value for name, value in (arguments or {}).items() if value is not None}
    if not said.get("store") and (room := project_room()):
        if not os.path.lexists(room):  # its mail must not go elsewhere
            raise BadStore(f"the project's room {room} is gone", field="store", hint="postroom init makes it anew")
        said["store"] = f"sqlite:{room}"
    return _checked(given | said)


def default_room() -> str:
    """The user's own room, where no other is named."""
    return own_room(own_environment())


def _from_file(path: str) -> dict[str, Any]:
    if not os.path.exists(path):
        return {}
    import tomllib  # noqa: PLC0415 - most have no such file

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError) as broken:
        raise Invalid(f"cannot be read: {broken}", field=path, hint="mend or remove it") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {PREFIX + name.upper(): name for name in Settings.__struct_fields__}
    return {names[variable]: value for variable, value in environment.items() if variable in names}


def misspelt(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that nobody reads, and the setting each of them was probably meant for."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a doctor asks

    environment = own_environment() if environment is None else environment
    known = [PREFIX + name.upper() for name in Settings.__struct_fields__]
    likely = {
        name: get_close_matches(name.upper(), known, 1, 0.85)
        for name in sorted(environment)
        if name.upper().startswith(PREFIX) and name not in known
    }
    return {name: meant[0] for name, meant in likely.items() if meant}


def _checked(given: dict[str, Any]) -> Settings:
    for name in given:
        if name not in Settings.__struct_fields__:
            raise Invalid("there is no such setting", field=name, hint=", ".join(Settings.__struct_fields__))
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as broken:
        what, _, name = str(broken).partition(" - at `$.")
        field = name.strip("`") or "settings"
        raise Invalid(what, field=field, hint=_WORDS.get(field, "postroom room --settings shows all")) from None

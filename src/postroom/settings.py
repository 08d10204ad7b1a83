"""One frozen object with every setting. The only place that reads the environment and the config file.

Defaults ← config file ← environment `POSTROOM_*` ← arguments. A setting nobody knows is refused.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from .errors import Invalid
from .policy.limits import Limits, Seconds

PREFIX = "POSTROOM_"


class Settings(Limits, frozen=True, kw_only=True):
    """All settings of a room, as opened."""

    store: str = ""  # a store's address; empty means the user's own room
    durability: Literal["power", "process"] = "power"  # what an acknowledged letter survives
    file_root: str = "."  # files enclosed in letters must lie below this folder
    busy_timeout: Seconds = 30.0  # seconds to wait for another process before StoreBusy


_WORDS = {"durability": "power or process", "unknown": "accept or refuse", "ladder": "names, with commas"}


def load_settings(
    arguments: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings in force: arguments beat the environment, which beats the config file."""
    environment = os.environ if environment is None else environment
    given: dict[str, Any] = _from_file(config_file(environment))
    given |= _from_environment(environment)
    given |= {name: value for name, value in (arguments or {}).items() if value is not None}
    return _checked(given)


def config_file(environment: Mapping[str, str]) -> Path:
    return _xdg(environment, "XDG_CONFIG_HOME", ".config") / "postroom" / "config.toml"


def default_room(environment: Mapping[str, str] | None = None) -> Path:
    """The user's own room, where no other is named."""
    return _xdg(os.environ if environment is None else environment, "XDG_DATA_HOME", ".local/share") / (
        "postroom/room.db"
    )


def _xdg(environment: Mapping[str, str], name: str, fallback: str) -> Path:
    """The XDG rule: a relative path in the variable is ignored."""
    named = environment.get(name, "")
    return Path(named) if named.startswith("/") else Path.home() / fallback


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as broken:
        raise Invalid(f"cannot be read: {broken}", field=str(path), hint="mend or remove it") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    names = {PREFIX + name.upper(): name for name in Settings.__struct_fields__}
    return {names[variable]: value for variable, value in environment.items() if variable in names}


def misspelt(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that nobody reads, and the setting each of them was probably meant for."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a doctor asks

    environment = os.environ if environment is None else environment
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
        raise Invalid(what, field=field, hint=_WORDS.get(field, "docs/reference.md lists the settings")) from None

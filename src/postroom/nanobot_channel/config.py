"""The section `channels.mailbox` of nanobot's config: its keys, their defaults, and what is refused.

Keys are written in camelCase or in snake_case. A key that nobody knows is refused: a typing error in `allowFrom`
must not open a door.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..errors import Invalid
from ..model.card import EVERYONE
from ..model.names import check_agent

OWN_CHANNEL = "mailbox"  # of the channel
SECTION = f"channels.{OWN_CHANNEL}"
NANOBOTS_OWN = frozenset({"sendProgress", "sendToolHints", "showReasoning", "streaming"})  # read by nanobot itself


class Config(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The section, checked."""

    enabled: bool = False
    agent_id: str = ""
    description: str = ""
    capabilities: tuple[str, ...] = ()
    allow_from: tuple[str, ...] = (EVERYONE,)
    max_concurrent_tasks: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    poll_interval: Annotated[float, Meta(gt=0, le=86_400)] = (
        5.0  # seconds; bells are quicker, this is the fallback
    )
    mailboxes_root: Annotated[str, Meta(min_length=1)] = "~/.nanobot/mailboxes"
    store: str = ""  # the address of any other room; empty means the folder above

    @property
    def address(self) -> str:
        """The address of the room."""
        return self.store or f"files:{Path(self.mailboxes_root).expanduser().absolute()}?layout=nanobot"


_KEYS = dict(zip(Config.__struct_fields__, Config.__struct_encode_fields__, strict=True))


def default_config() -> dict[str, Any]:
    """The section as nanobot writes it into a new config."""
    plain: dict[str, Any] = msgspec.to_builtins(Config())
    return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}


def parse(section: Any) -> Config:
    """The section as nanobot hands it over, or a refusal that names the key."""
    if not isinstance(section, dict):
        raise Invalid(f"must be an object, not {type(section).__name__}", field=SECTION)
    said = {key: value for key, value in _camel(section).items() if key not in NANOBOTS_OWN}
    for key in said:
        _check_known(key)
    try:
        config = msgspec.convert(said, Config)
    except msgspec.ValidationError as wrong:
        raise Invalid(str(wrong).replace("`$.", f"`{SECTION}."), field=SECTION) from None
    _check_names(config)
    return config


def _camel(section: dict[Any, Any]) -> dict[str, Any]:
    """The section with each key in camelCase. Saying one in both ways is refused if they differ."""
    said: dict[str, Any] = {}
    for written, value in section.items():
        head, *tail = str(written).split("_")
        key = head + "".join(word.capitalize() for word in tail)
        if key in said and said[key] != value:
            raise Invalid("is there in both spellings, with two values", field=f"{SECTION}.{key}")
        said[key] = value
    return said


def _check_known(key: str) -> None:
    known = list(_KEYS.values())
    if key not in known:
        near = get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise Invalid("is not a setting of this channel", field=f"{SECTION}.{key}", hint=hint)


def _check_names(config: Config) -> None:
    if config.enabled and not config.agent_id:
        raise Invalid("is empty", field=f"{SECTION}.agentId", hint="say who this agent is, such as researcher")
    if config.agent_id:
        check_agent(config.agent_id, f"{SECTION}.agentId")
    for name in config.allow_from:
        if name != EVERYONE:
            check_agent(name, f"{SECTION}.allowFrom")

"""The section `channels.mailbox` of nanobot's config: its keys, their defaults and the checks of their values.

Keys are written in camelCase or in snake_case. An unknown key is refused: a typing error in `allowFrom` must not
admit every sender.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...errors import BadStore, Invalid
from ...model.agent import EVERYONE
from ...model.names import ONE_MAILBOX, POSTMASTER, check_agent, fold
from ...model.values import check_label, check_text
from ...store.address import absolute, check_usable

OWN_CHANNEL = "mailbox"  # the name of the channel
SECTION = f"channels.{OWN_CHANNEL}"
LONGEST_DESCRIPTION = 10_000  # characters, as on any card
NANOBOTS_OWN = frozenset({"sendProgress", "sendToolHints", "showReasoning", "streaming"})  # read by nanobot itself


class Config(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The checked section."""

    enabled: bool = False
    agent_id: str = ""
    description: str = ""
    capabilities: tuple[str, ...] = ()
    allow_from: tuple[str, ...] = (EVERYONE,)
    max_concurrent_tasks: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    poll_interval: Annotated[float, Meta(ge=0.01, le=86_400)] = (
        5.0  # seconds; notifications are quicker, this is the fallback
    )
    mailboxes_root: Annotated[str, Meta(min_length=1)] = "~/.nanobot/mailboxes"
    store: str = ""  # the address of any other room; empty means the folder above
    mails_per_minute: Annotated[int, Meta(ge=1, le=1_000_000)] = 60  # to one peer, and turns begun by one peer
    automatic_mails: Annotated[int, Meta(ge=1, le=1_000_000)] = 10  # to one peer in one conversation (G11)
    automatic_per_hour: Annotated[int, Meta(ge=1, le=1_000_000)] = 100  # to one peer over all conversations (G11)

    @property
    def address(self) -> str:
        """The address of the room."""
        return self.store or absolute(f"files:{self.mailboxes_root}?layout=nanobot")


_KEYS = dict(zip(Config.__struct_fields__, Config.__struct_encode_fields__, strict=True))
_SPELLINGS = _KEYS | {re.sub("([A-Z])", r"_\1", key).lower(): key for key in NANOBOTS_OWN}  # snake to camel


def default_config() -> dict[str, Any]:
    """Return the section as nanobot writes it into a new config."""
    plain: dict[str, Any] = msgspec.to_builtins(Config())
    return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}


def parse(section: Any) -> Config:
    """Check the section that nanobot passes; an error names the key."""
    if not isinstance(section, dict):
        raise Invalid(f"must be an object, not {type(section).__name__}", field=SECTION)
    # nanobot adds keys of its own to every section, which are no mistakes of the user.
    fields = {key: value for key, value in _camel(section).items() if key not in NANOBOTS_OWN}
    for key in fields:
        _check_known(key)
    try:
        config = msgspec.convert(fields, Config)
    except msgspec.ValidationError as wrong:
        raise Invalid(str(wrong).replace("`$.", f"`{SECTION}."), field=SECTION) from None
    _check_names(config)
    _check_words(config)
    if config.enabled:
        _check_place(config)
    return config


def _camel(section: dict[Any, Any]) -> dict[str, Any]:
    """Return the section with each key in camelCase. Refuse a key in both spellings with two values."""
    fields: dict[str, Any] = {}
    for written, value in section.items():
        key = _SPELLINGS.get(str(written), str(written))
        if key in fields and fields[key] != value:
            raise Invalid("is set in both spellings, to two values", field=f"{SECTION}.{key}")
        fields[key] = value
    return fields


def _check_known(key: str) -> None:
    known = list(_KEYS.values())
    if key not in known:
        near = get_close_matches(key.replace("_", ""), known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise Invalid("is not a setting of this channel", field=f"{SECTION}.{key}", hint=hint)


def _check_names(config: Config) -> None:
    if config.enabled and not config.agent_id:
        raise Invalid("is empty", field=f"{SECTION}.agentId", hint="give this agent a name, such as researcher")
    if config.agent_id:
        _check_not_taken(config.agent_id, check_agent(config.agent_id, f"{SECTION}.agentId"))
    for name in config.allow_from:
        if name != EVERYONE:
            check_agent(name, f"{SECTION}.allowFrom")


def _check_words(config: Config) -> None:
    """Refuse texts that an agent's card cannot hold; else the gateway would fail only when it registers."""
    check_text(config.description, f"{SECTION}.description", LONGEST_DESCRIPTION)
    for capability in config.capabilities:
        check_label(capability, f"{SECTION}.capabilities")


def _check_not_taken(text: str, name: str) -> None:
    """Refuse the names of the room and of the person: the agent would answer mail that is not for it."""
    field, hint = f"{SECTION}.agentId", "choose another name"
    if fold(name) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} is reserved for the room itself", field=field, hint=hint)
    if fold(name) in ONE_MAILBOX.values():
        raise Invalid(f"{text!r} is a name of the human, whose mail no agent answers", field=field, hint=hint)


def _check_place(config: Config) -> None:
    """Refuse an address or folder where no room can be made or opened. Nothing is made."""
    key, place = ("store", config.store) if config.store else ("mailboxesRoot", config.mailboxes_root)
    field = f"{SECTION}.{key}"
    if not config.store and "?" in place:  # in an address, a ? begins the options
        raise Invalid(f"{place!a} has a ?, which no room may have", field=field, hint="remove the ?")
    try:
        check_usable(config.address)
    except BadStore as wrong:
        raise Invalid(
            f"no room can be opened at {place}: {wrong.message}",
            field=field,
            hint=wrong.hint or "name another place",
        ) from None

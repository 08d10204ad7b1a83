"""The one validator of names, ids and short labels. Nothing enters the house around it.

A name can never be a path, never hide a character, and never read like another agent's name:
letters are ASCII only, so Unicode look-alikes are refused outright, and `fold` makes `Coder` and `coder` one.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import Invalid

AGENT_RULE = "1 to 128 of A-Z a-z 0-9 . _ - starting with a letter or digit, optionally swarm/agent"
NAME_RULE = "1 to 128 of A-Z a-z 0-9 . _ - starting with a letter or digit"
SCOPE_RULE = "1 to 128 of A-Z a-z 0-9 . _ - : / where each part between : and / starts with a letter or digit"
ID_RULE = "1 to 200 of A-Z a-z 0-9 . _ : -"
KIND_RULE = "1 to 64 of A-Z a-z 0-9 . _ : - starting with a letter"
PARTY_RULE = "an agent's name, or agent@system for one at another system"
BROADCAST = "broadcast:"
AT = "@"  # between an agent and the other system where it is; in no name of ours
POSTMASTER = "postmaster"  # signs the notices of the house; nobody else may use the name
ANY = "any:"  # and capabilities, with commas: whoever can do all of them

_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,127})?")
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(_WORD)
# At most 32 parts, so that the id of a scope's catch-all conversation stays an id (model/thread.py). No part is
# `..` or empty: a scope may name a folder.
_SCOPE = re.compile(r"(?!.{129})[A-Za-z0-9][A-Za-z0-9._-]*(?:[:/][A-Za-z0-9][A-Za-z0-9._-]*){0,31}")
_PARTY = re.compile(rf"(?:{_AGENT.pattern})?@(?:\*|{_WORD})(?:/{_SCOPE.pattern})?")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,200}")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9._:-]{0,63}")


# The human has one mailbox, whatever a design calls them.
HUMAN = "human"
ONE_MAILBOX = {"user": HUMAN, "ceo": HUMAN}
_sound: dict[str, str] = {}  # what was asked before, and its answer: every letter names two
_MOST_SOUND = 1024


def check_agent(name: Any, field: str) -> str:
    """An agent's name: `coder`, `review-bot`, or `swarm/agent`. The other names of the human become `human`."""
    found = _sound.get(name) if type(name) is str else None
    if found is not None:
        return found
    checked = _check(name, field, _AGENT, AGENT_RULE)
    agent = checked if len(checked) > 4 else ONE_MAILBOX.get(fold(checked), checked)
    if len(_sound) >= _MOST_SOUND:
        _sound.clear()
    _sound[checked] = agent
    return agent


def meant(name: str, human: str) -> str:
    """Whose mailbox is meant by a name, where the human's is called `human`."""
    return check_agent(human, HUMAN) if fold(name) == HUMAN else name


def check_remote_agent(name: Any, field: str) -> str:
    """The name of an agent at another system: spelt like ours, and never another name of our human."""
    return _check(name, field, _AGENT, AGENT_RULE)


def check_party(name: Any, field: str) -> str:
    """Who wrote a letter, or got it: an agent here, or `agent@system`."""
    if type(name) is str and AT in name:
        return _check(name, field, _PARTY, PARTY_RULE)
    return check_agent(name, field)


def check_id(value: Any, field: str) -> str:
    """The id of a message, conversation, thread or task."""
    return _check(value, field, _ID, ID_RULE)


def check_scope(value: Any, field: str) -> str:
    """A scope (a swarm, a team): `team`, or as MAP's clients write it, `swarm:team` or `org/team`."""
    return _check(value, field, _SCOPE, SCOPE_RULE)


def is_scope_only(value: str) -> bool:
    """Is it the name of a scope that no agent can have, such as `swarm:team`?"""
    return bool(_SCOPE.fullmatch(value)) and not _AGENT.fullmatch(value)


def check_name(value: Any, field: str) -> str:
    """A single name, such as a system's or a template's: like an agent's, without the slash."""
    return _check(value, field, _NAME, NAME_RULE)


def check_kind(value: Any, field: str) -> str:
    """The kind of a letter: an open word such as `task` or `handoff`."""
    return _check(value, field, _KIND, KIND_RULE)


def fold(name: str) -> str:
    """The form in which two names count as the same."""
    return name.lower()


def _check(value: Any, field: str, rule: re.Pattern[str], words: str) -> str:
    if not isinstance(value, str):
        raise Invalid(f"must be text, not {type(value).__name__}", field=field, hint=words)
    if not rule.fullmatch(value):
        raise Invalid(_complaint(value), field=field, hint=words)
    return value if type(value) is str else str.__str__(value)


def _complaint(value: str) -> str:
    if not value:
        return "is empty"
    if len(value) > 256:
        return f"is {len(value)} characters long"
    return f"{value!a} is not allowed"

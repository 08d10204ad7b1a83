"""Verbs of conversations as functions of a core, a caller and values, for tests."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from postroom.core import conversations as verbs
from postroom.core.authorize import Principal
from postroom.core.conversations import Guest, OpenConversation, TakeTurn, View
from postroom.core.core import Core
from postroom.core.verb import perform
from postroom.model.message import Message
from postroom.model.thread import ThreadRecord


def get_view(core: Core, caller: Principal, id: str) -> View:
    return perform(core, caller, verbs.ViewConversation(conversation=id))


def conversations(core: Core, caller: Principal, scope: str | None = None, after: str | None = None) -> list[View]:
    return list(perform(core, caller, verbs.ViewConversations(scope=scope, after=after)))


def create(core: Core, caller: Principal, opening: OpenConversation) -> View:
    return perform(core, caller, opening)


def turn(core: Core, caller: Principal, id: str, agent: str, turn: TakeTurn) -> Message:
    turn.conversation, turn.agent_id = id, agent
    return perform(core, caller, turn)


def join(core: Core, caller: Principal, id: str, agent: str, role: Any = None) -> View:
    return perform(core, caller, verbs.JoinConversation(conversation=id, agent_id=agent, role=role))


def leave(core: Core, caller: Principal, id: str, agent: str) -> datetime:
    return perform(core, caller, verbs.LeaveConversation(conversation=id, agent_id=agent)).at


def invite(core: Core, caller: Principal, id: str, guest: Guest) -> View:
    return perform(core, caller, verbs.Invite(conversation=id, guest=guest))


def close(core: Core, caller: Principal, id: str, status: str = "completed") -> View:
    return perform(core, caller, verbs.CloseConversation(conversation=id, status=status))


def reopen(core: Core, caller: Principal, id: str) -> View:
    return perform(core, caller, verbs.ReopenConversation(conversation=id))


def start_thread(core: Core, caller: Principal, id: str, root: str, **more: Any) -> ThreadRecord:
    return perform(core, caller, verbs.StartThread(conversation=id, root=root, **more))

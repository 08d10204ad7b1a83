"""Verbs that make sense only in this process: no wire offers them, and none of their private fields."""

from __future__ import annotations

import pytest

from postroom.core import agents, peers, portable, search, stats, tasks, tokens, transfer, webhooks
from postroom.core.verb import LOCAL, Verb, from_params, parameters
from postroom.errors import Invalid
from postroom.mcp.tools import TOOLS
from postroom.server.inbox_actions import ACTIONS
from postroom.server.mail import MAIL
from postroom.server.protocol import wire_verbs
from postroom.server.requests import SESSION

LOCAL_VERBS: list[type[Verb]] = [
    agents.UpdateCard,
    agents.RecordHeartbeats,
    peers.AddPeer,
    peers.GetPeer,
    peers.GetSystem,
    peers.Mount,
    peers.RemovePeer,
    peers.RotatePeer,
    peers.TrustPeer,
    peers.Unmount,
    portable.Backup,
    portable.Export,
    portable.Import,
    search.FindIds,
    stats.GetFlow,
    tasks.Admit,
    tasks.FailUnanswered,
    tasks.FindTask,
    tokens.CreateToken,
    tokens.Unseal,
    transfer.Copy,
    webhooks.AddWebhook,
    webhooks.CallAnswered,
    webhooks.GetWebhook,
    webhooks.RemoveWebhook,
    webhooks.RotateWebhook,
    webhooks.SwitchWebhook,
]


def test_no_wire_offers_a_local_verb() -> None:
    offered = ACTIONS | MAIL | SESSION | wire_verbs()
    assert not [name for name, verb in offered.items() if verb.declaration().local]
    names = {verb.declaration().name for verb in LOCAL_VERBS}
    assert not names & {*offered, *TOOLS}


@pytest.mark.parametrize("verb", LOCAL_VERBS)
def test_a_verb_that_takes_a_path_or_a_function_is_local(verb: type[Verb]) -> None:
    assert verb.declaration().local


@pytest.mark.parametrize(("name", "field"), [("register", "extra"), ("doctor", "repair"), ("sweep", "progress")])
def test_a_field_for_callers_in_this_process_is_no_parameter_of_a_wire(name: str, field: str) -> None:
    verb = wire_verbs()[name]
    assert field not in parameters(verb)
    assert LOCAL not in {one.help for one in parameters(verb).values()}
    with pytest.raises(Invalid, match="no such parameter"):
        from_params(verb, {field: True})

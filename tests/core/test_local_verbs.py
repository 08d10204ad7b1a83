"""Verbs that make sense only in this process: no wire offers them, and none of their private fields."""

from __future__ import annotations

import pytest

from postroom.core import agents, portable, stats, transfer
from postroom.core.verb import LOCAL, Verb, parameters
from postroom.errors import Invalid
from postroom.mcp.tools import ROWS
from postroom.server.protocol import ACTIONS, MAIL, VERBS
from postroom.server.table import check_params

LOCAL_VERBS: list[type[Verb]] = [
    agents.UpdateCard,
    agents.RecordHeartbeats,
    portable.Backup,
    portable.Export,
    portable.Import,
    stats.GetFlow,
    transfer.Copy,
]


def test_no_wire_offers_a_local_verb() -> None:
    offered = {row.verb for table in (ACTIONS, MAIL, VERBS) for row in table.values() if row.verb is not None}
    assert offered and not [verb for verb in offered if verb.declaration().local]
    names = {verb.declaration().name for verb in LOCAL_VERBS}
    assert not names & {*ACTIONS, *MAIL, *VERBS, *(row.name for row in ROWS)}


@pytest.mark.parametrize("verb", LOCAL_VERBS)
def test_a_verb_that_takes_a_path_or_a_function_is_local(verb: type[Verb]) -> None:
    assert verb.declaration().local


@pytest.mark.parametrize(("name", "field"), [("register", "extra"), ("doctor", "repair"), ("sweep", "progress")])
def test_a_field_for_callers_in_this_process_is_no_parameter_of_a_wire(name: str, field: str) -> None:
    row = VERBS[name]
    assert row.verb is not None and field not in parameters(row.verb)
    assert LOCAL not in {param.about for param in row.params}
    with pytest.raises(Invalid, match="no such parameter"):
        check_params(row, {field: True})

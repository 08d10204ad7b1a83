"""How hard the tests look: a quick look by default, a long one with POSTROOM_TEST_LONG=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("POSTROOM_TEST_LONG") == "1"

# No deadline: the machine is shared, and a slow moment is no bug.
settings.register_profile("quick", deadline=None, max_examples=60, stateful_step_count=30)
settings.register_profile(
    "long",
    deadline=None,
    max_examples=2000,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("long" if LONG else "quick")

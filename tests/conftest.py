"""How hard the tests look: a quick look by default, a long one with POSTROOM_TEST_LONG=1."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# Started in the background, a shell lets its programs ignore Ctrl-C, and theirs too; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

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

"""Make the environment of the peers' clients, and go on in it."""

from __future__ import annotations

import os
import sys

from .environment import interpreter

python = str(interpreter())
os.execv(python, [python, "-m", "bench.peers.run", *sys.argv[1:]])  # noqa: S606

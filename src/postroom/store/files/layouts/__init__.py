"""The three designs that keep mail as files. A layout says how a letter is written down and where it lies in which
state; it does no I/O, and knows no other layout.

    shapes    where letters lie, and what their files are called
    base      what a layout is, and what all of them share
    nanobot   `<agent>/inbox/*.msg.json`, `processed/`
    chipset   `mail/<agent>/<time>-<from>.json`, `archive/`
    swarm     `<agent>/inbox/MSG-*.json`, `archive/`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....errors import BadStore
from .paths import SHAPES

if TYPE_CHECKING:
    from .base import Layout


NAMES = tuple(SHAPES)


def layout_named(name: str) -> Layout:
    if name not in NAMES:
        raise BadStore(f"{name!a} is no layout", field="store", hint=", ".join(NAMES))
    module = __import__(f"{__name__}.{name}", fromlist=[name])
    layout: Layout = module.LAYOUT
    return layout

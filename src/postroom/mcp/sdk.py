"""Whether the official MCP SDK is installed, and new enough. It is not imported here: that takes a second."""

from __future__ import annotations

from importlib.util import find_spec

from ..environment import how_to_install
from ..errors import Invalid

APART = (
    'nanobot is installed in this environment and needs version 1 of the SDK `mcp`, so "postroom[mcp]" conflicts'
    " with it: use an environment of its own, such as pipx install 'postroom[mcp]'"
)
_BESIDE = "where another program needs the old one, use an environment of its own: pipx install 'postroom[mcp]'"


class SdkMissing(Invalid):
    """The MCP server needs the official SDK."""

    code = 1905


def need_sdk() -> None:
    """Raise SdkMissing unless the SDK is installed and new enough. Nothing is imported."""
    if find_spec("mcp_types") is not None:  # came with version 2
        return
    if find_spec("mcp") is None:
        raise SdkMissing(
            "the MCP server needs the official SDK, which is not installed", hint=how_to_install("mcp")
        )
    raise SdkMissing("the MCP server needs version 2.3 of the SDK `mcp`, an older one is installed",
                     hint=APART if is_beside_nanobot() else f"{how_to_install('mcp')}; {_BESIDE}")  # fmt: skip


def is_beside_nanobot() -> bool:
    """Return whether nanobot is installed, which needs an older SDK than the MCP server."""
    spec = find_spec("nanobot")
    return spec is not None and spec.origin is not None  # an earlier Postroom left a folder in it

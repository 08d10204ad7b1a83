"""The tools of the model as nanobot loads them: one class for each row of `toolbox.TOOLS`.

They work in a gateway and in a single turn (`nanobot agent -m`), where no channel is running.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any, Self

from msgspec.structs import replace
from nanobot.agent.tools.base import Tool
from nanobot.agent.tools.context import current_request_context
from nanobot.config.loader import load_config

from ...errors import PostroomError
from . import bus, toolbox
from . import config as channel_config
from .config import OWN_CHANNEL
from .gateways import is_reached
from .post import shared


def _config() -> tuple[channel_config.Config, str, dict[str, Any]]:
    """Read nanobot's config: the section of this channel, the workspace, and the sections of all channels."""
    written = load_config()
    section = getattr(written.channels, OWN_CHANNEL, None)
    own = channel_config.parse(section if isinstance(section, dict) else {})
    return own, str(written.workspace_path), dict(written.channels)


class MailTool(Tool):  # type: ignore[misc] # nanobot is installed elsewhere, and unknown here
    """The base class of the tools; each subclass has one specification."""

    spec: toolbox.ToolSpec
    _plugin_discoverable = False

    @classmethod
    def enabled(cls, ctx: Any) -> bool:  # noqa: ARG003 - nanobot passes it
        """Return whether the channel is enabled and its section is valid; the channel reports what is wrong."""
        try:
            return _config()[0].enabled
        except PostroomError:
            return False

    @classmethod
    def create(cls, ctx: Any) -> Self:
        bus.note_source(ctx)
        return cls()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def description(self) -> str:
        return self.spec.description

    @property
    def parameters(self) -> dict[str, Any]:
        return deepcopy(self.spec.parameters)

    @property
    def read_only(self) -> bool:
        return self.spec.read_only

    async def execute(self, **arguments: Any) -> str:
        try:
            config, workspace, sections = await asyncio.to_thread(_config)
            post = await shared(config, workspace)
        except PostroomError as error:
            return f"Error: {error}"
        caller = bus.caller_from(current_request_context())
        if caller is not None:
            caller = replace(caller, is_reached=is_reached(caller.channel, sections))
        return await toolbox.call(self.spec, post, caller, arguments)


def _tool(spec: toolbox.ToolSpec) -> type[MailTool]:
    name = "".join(word.capitalize() for word in spec.name.split("_"))
    return type(name, (MailTool,), {"spec": spec, "_plugin_discoverable": True, "__doc__": spec.description})


MailSend, MailTask, MailReply, MailAgents, MailTasks, MailCancel, MailDecline, MailAsk = map(_tool, toolbox.TOOLS)

"""A reception without nanobot: what is handed over goes to a function, whose word is the last of the turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from postroom.core.inbox import received
from postroom.model.delivery import State
from postroom.nanobot.channel import config, toolbox
from postroom.nanobot.channel.auto_reply import Pace
from postroom.nanobot.channel.bus import Inbound
from postroom.nanobot.channel.config import OWN_CHANNEL
from postroom.nanobot.channel.gateways import is_reached
from postroom.nanobot.channel.post import AgentPost, ToolCaller, shared
from postroom.nanobot.channel.reception import Reception
from tests import daemons

PATIENCE = daemons.PATIENCE

Says = Callable[[Inbound], str | None]
TOOLS = {row.name: row for row in toolbox.TOOLS}


class Log:
    """A log that is kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *args: Any) -> None:
        self.lines.append(text.format(*args))

    warning = info


class ScriptedAgent:
    """One agent: its post, its reception, and all that was handed over."""

    def __init__(self, post: AgentPost, says: Says, media: Path) -> None:
        self.post = post
        self.says = says
        self.log = Log()
        self.seen: list[Inbound] = []
        self.reports_turn_ends = True
        self.reception = Reception(post, self, self.log, media)
        self._answering: set[asyncio.Task[None]] = set()

    async def hand_over(self, inbound: Inbound) -> None:
        self.seen.append(inbound)
        if inbound.content == "/stop":
            return
        word = self.says(inbound)
        if word is not None:
            task = asyncio.create_task(self.answer(inbound, word))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def reaches(self, channel: str) -> bool:
        return is_reached(channel, {"person": {"enabled": True}})

    async def answer(self, inbound: Inbound, word: str, media: tuple[str, ...] = ()) -> None:
        letter = inbound.metadata[OWN_CHANNEL]["id"]
        if inbound.channel == OWN_CHANNEL:
            await self.reception.answer_turn(letter, word, media)
        else:
            await self.reception.end_turn(letter)

    def caller(self, inbound: Inbound | None = None) -> ToolCaller:
        """The conversation of a person, or that of a turn."""
        if inbound is None:
            return ToolCaller(channel="person", chat="sofa", session="person:sofa")
        channel, _, chat = (
            inbound.chat.partition(":") if inbound.channel == "system" else (OWN_CHANNEL, "", inbound.chat)
        )
        letter = inbound.metadata[OWN_CHANNEL]["id"]
        return ToolCaller(channel=channel, chat=chat, session=inbound.session, letter=letter)


@asynccontextmanager
async def scripted_agent(
    folder: Path,
    agent: str,
    says: Says = lambda _: None,
    *,
    pace: Pace | None = None,
    **section: Any,
) -> AsyncIterator[ScriptedAgent]:
    """A reception at work, over the mailboxes in `folder`."""
    params = {"enabled": True, "agentId": agent, "mailboxesRoot": str(folder / "mailboxes"), "pollInterval": 0.2}
    workspace = folder / f"{agent}-workspace"
    workspace.mkdir(exist_ok=True)
    post = await shared(config.parse(params | section), str(workspace))
    made = ScriptedAgent(post, says, folder / f"{agent}-media")
    if pace is not None:
        made.reception._pace = pace
    running = asyncio.create_task(made.reception.run())
    try:
        await until(lambda: bool(made.log.lines))
        yield made
    finally:
        running.cancel()
        await asyncio.wait([running])
        await made.reception.leave()
        await post.close()


async def until(look: Callable[[], Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        while not (found := look()):
            await asyncio.sleep(0.01)
        return found


def run(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scene())  # type: ignore[arg-type]


def state_of(at: ScriptedAgent, letter: str) -> State:
    return received(at.post.core, at.post.name, letter).delivery.state


def content_and_mode(path: str) -> tuple[str, int]:
    return Path(path).read_text(encoding="utf-8"), Path(path).stat().st_mode & 0o777


async def use(at: ScriptedAgent, tool: str, inbound: Inbound | None = None, **arguments: object) -> str:
    return await toolbox.call(TOOLS[tool], at.post, at.caller(inbound), arguments)


async def use_in_terminal(at: ScriptedAgent, tool: str, **arguments: object) -> str:
    """As `nanobot agent -m` does."""
    caller = ToolCaller(channel="cli", chat="direct", session="cli:direct", is_reached=False)
    return await toolbox.call(TOOLS[tool], at.post, caller, arguments)

"""Every way into a room, over a room on a server: each by its own program, as it is used."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.core import peers, tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.store.files.layouts.base import layout_named
from postroom.store.files.layouts.paths import NAMES
from tests.daemons import PATIENCE, Daemon, free_port
from tests.hosts.hosting import Host, Place
from tests.postgres.server import address_in, needs_server

pytestmark = [needs_server, pytest.mark.daemon]


class Served:
    """A room on the server, and `postroom serve` on it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.port = free_port()
        self.address = address_in(self.folder)
        self.room = postroom.open(self.address, system=name)
        self.daemon: Daemon | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/map"

    def serve(self, *options: str, token: str = "") -> Daemon:
        words = ("--room", self.address, "--http", f"127.0.0.1:{self.port}", "--set", f"system={self.name}")
        state = str(self.folder / "state")
        self.daemon = Daemon(self.folder, *words, *options, XDG_STATE_HOME=state, POSTROOM_MAP_TOKEN=token)
        return self.daemon

    def close(self) -> None:
        if self.daemon is not None:
            self.daemon.__exit__()
        self.room.close()


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    with ExitStack() as stack:
        pair = Served(tmp_path, "north"), Served(tmp_path, "south")
        for one in pair:
            stack.callback(one.close)
        yield pair


def exchange(one: postroom.Mailbox, to: str, other: postroom.Mailbox) -> None:
    """A letter goes there, and its answer comes back."""
    sent = one.send(to, "How is it?")
    letter = other.wait(timeout=PATIENCE)
    assert letter is not None and letter.text == "How is it?"
    letter.reply("Well.")
    letter.ack()
    answer = one.wait(timeout=PATIENCE)
    assert answer is not None and ("Well.", sent.id) == (answer.text, answer.message.in_reply_to)
    answer.ack()


# -- systems


def add_peer(here: Served, other: Served, **fields: Any) -> Any:
    wanted = {"exposure": "all", **fields}
    return perform(here.room.core, OWNER, peers.AddPeer(system=other.name, fields=wanted, ours=here.name))


def test_two_linked_rooms_exchange_letters(rooms: tuple[Served, Served]) -> None:
    north, south = rooms
    token = add_peer(south, north).token
    add_peer(north, south, url=south.url, token=token)
    ann, bob = north.room.mailbox("ann"), south.room.mailbox("bob")
    ann.register()
    bob.register()
    for one in rooms:
        one.serve()

    exchange(ann, "bob@south", bob)


def test_a_room_that_is_linked_to_a_map_server_exchanges_letters(rooms: tuple[Served, Served]) -> None:
    guest, host = rooms
    token = perform(host.room.core, OWNER, tokens.CreateToken()).text
    ann, bob = guest.room.mailbox("ann"), host.room.mailbox("bob")
    ann.register()
    bob.register()
    host.serve()
    guest.serve("--map-server", host.url, token=token)

    exchange(ann, "south/bob", bob)


def test_a_mounted_folder_exchanges_letters(rooms: tuple[Served, Served], tmp_path: Path) -> None:
    home = rooms[0]
    layout = layout_named(NAMES[0])
    place = f"files:{tmp_path / 'mail'}?layout={layout.name}"
    (tmp_path / "mail").mkdir()
    with postroom.open(place) as folder:
        folder.mailbox("researcher").register()
    home.room.mailbox("ann").register()
    perform(home.room.core, OWNER, peers.Mount(system="folder", place=place, ours=home.name, room=home.address))
    home.serve()

    with postroom.open(place) as folder:
        exchange(home.room.mailbox("ann"), "researcher@folder", folder.mailbox("researcher"))


# -- MCP


def test_two_agents_exchange_letters_through_mcp(rooms: tuple[Served, Served]) -> None:
    pytest.importorskip("mcp_types", reason="needs the extra postroom[mcp]")
    import httpx2 as httpx
    from mcp.client.streamable_http import streamable_http_client

    from mcp import Client, StdioServerParameters, stdio_client
    from tests.mcp.harness import ask

    served = rooms[0]
    daemon = served.serve()
    token = perform(served.room.core, OWNER, tokens.CreateToken(agent="bob")).text
    environment = {**os.environ, "POSTROOM_STORE": served.address, "HOME": str(served.folder)}
    words = ["-m", "postroom", "mcp", "--as", "ann"]
    beside = StdioServerParameters(command=sys.executable, args=words, env=environment)

    async def story() -> None:
        async with (
            httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE) as http,
            Client(streamable_http_client(daemon.where["mcp"], http_client=http)) as bob,
            Client(stdio_client(beside), mode="legacy") as ann,
        ):
            waiting = asyncio.create_task(ask(bob, "wait_for_mail", timeout=20))
            await ask(ann, "send_message", to="bob", body="over the pipe")
            assert "over the pipe" == (await waiting)["message"]["content"]["text"]
            await ask(bob, "send_message", to="ann", body="over HTTP")
            found = await ask(ann, "check_inbox")
            assert ["over HTTP"] == [one["content"]["text"] for one in found["messages"]]

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


# -- the dashboard


def test_the_dashboard_shows_what_waits_and_what_moves(rooms: tuple[Served, Served]) -> None:
    from tests.server.http.visiting import tab, token_of

    served = rooms[0]
    daemon: Any = served.serve()
    daemon.port = served.port
    coder = served.room.mailbox("coder")
    with tab(daemon, token_of(daemon)) as page:
        coder.escalate("May I?", subject="Drop the index?", reason="needs_approval")
        assert "Drop the index?" in str(page.call("mail/waiting", agent_id="human"))
        assert "coder" in str(page.call("mail/queues")) + str(page.call("mail/agents"))
        assert page.call("mail/board") is not None
        page.call("flow/watch")
        coder.send("tester", "one")
        while "tester" not in str(page.heard):
            page.heard.append(page.next())


# -- the command line


class Shell:
    """A shell of this user, in which PostgreSQL's library may be missing."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._blocked = served.folder / "blocked" / "psycopg"
        self._blocked.mkdir(parents=True)
        (self._blocked / "__init__.py").write_text("raise ImportError(name='psycopg')")

    def text(self, *words: str, has_library: bool = False) -> str:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("POSTROOM_")}
        here = {"POSTROOM_STORE": self._served.address, "XDG_STATE_HOME": str(self._served.folder / "state")}
        path = {} if has_library else {"PYTHONPATH": os.pathsep.join([str(self._blocked.parent), *sys.path])}
        command = [sys.executable, "-m", "postroom", *words]
        done = subprocess.run(command, env=kept | here | path, capture_output=True, text=True, check=False)
        assert not done.stderr, done.stderr
        return done.stdout

    def run(self, *words: str, has_library: bool = False) -> Any:
        return json.loads(self.text(*words, "--json", has_library=has_library))


def test_commands_are_carried_out_by_the_post_room_of_this_machine(rooms: tuple[Served, Served]) -> None:
    shell = Shell(rooms[0])
    rooms[0].serve()
    hello = ("send", "bob", "--as", "ann", "--body", "hello", "--priority", "high", "--key", "k1")
    sent = shell.run(*hello)
    assert shell.run(*hello)["repeated"]
    assert ["hello"] == [one["text"] for one in shell.run("check", "--as", "bob", "--peek")["letters"]]
    assert 1 == shell.run("counts", "--as", "bob")["high"]
    (held,) = shell.run("claim", "--as", "bob")["letters"]
    assert sent["id"] == held["id"]
    shell.run("ack", held["id"], "--as", "bob", "--token", held["token"], "--reply", "hello yourself")
    assert [] == shell.run("check", "--as", "bob")["letters"]
    assert "hello yourself" in shell.text("check", "--as", "ann")
    assert "hello yourself" in shell.text("claim", "--as", "ann")


def test_a_command_does_itself_what_the_post_room_may_not(rooms: tuple[Served, Served]) -> None:
    served = rooms[0]
    shell = Shell(served)
    daemon = served.serve()
    perform(served.room.core, OWNER, tokens.CreateToken(agent="ann"))  # from now on only its holder is ann there
    with pytest.raises(AssertionError, match="needs psycopg"):
        shell.run("send", "bob", "--as", "ann", "--body", "one")
    shell.run("send", "bob", "--as", "ann", "--body", "one", has_library=True)
    daemon.stop()
    shell.run("send", "bob", "--as", "carl", "--body", "two", has_library=True)
    assert ["one", "two"] == [letter.text for letter in served.room.mailbox("bob").check()]


# -- hooks of hosts


def test_a_session_is_shown_its_mail_and_rung_for_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    address = address_in(tmp_path)
    place.environment["POSTROOM_STORE"] = address
    place.room = lambda: postroom.open(address)  # type: ignore[method-assign]
    with Host(place) as host:
        host.start()
        host.wait_for_armed(1)
        place.post("shop", "Which sort?", subject="Sorting")
        assert "Which sort?" in host.prompt()
        host.stop()
        place.post("shop", "How fast?", subject="Speed")
        host.wait_for_rings(1)
        assert "How fast?" in host.prompt()

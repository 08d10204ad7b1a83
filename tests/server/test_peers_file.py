"""A file of peers: what it says holds when the daemon starts, and what nobody would keep stops it (I6)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import postroom
from postroom import Invalid, Room
from postroom.app import options
from postroom.app.options import options as options_options
from postroom.core import peers
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from tests.daemons import Daemon

TOKEN = "a-token-of-sixteen-or-more"  # noqa: S105
PIN = "sha256:" + "a" * 64


def write(folder: Path, text: str, name: str = "peers.toml", mode: int = 0o600) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


def applied(room: Room, folder: Path, text: str) -> list[str]:
    write(folder, TOKEN + "\n", "secret")
    write(folder, f"other-{TOKEN}\n", "other")
    return options.apply(room.core, str(write(folder, text)), "paris")


@pytest.fixture
def opened(tmp_path: Path) -> Room:
    return postroom.open(tmp_path / "room.db", durability="process")


FILE = f"""
[berlin]
url = "wss://berlin.example:4650"
token_file = "secret"
pin = "{PIN}"
exposure = "tagged"
tags = ["public"]
relays_for = ["tokyo"]
relays_to = true
scopes = {{ dev = ["berlin/dev", "tokyo"] }}

[rome]
accept_file = "secret"
"""


def test_what_the_file_says_holds_and_again_changes_nothing(opened: Room, tmp_path: Path) -> None:
    assert ["berlin", "rome"] == applied(opened, tmp_path, FILE)
    berlin = peers.known_peer(opened.core, "berlin")
    assert ("wss://berlin.example:4650/map", TOKEN, PIN) == (berlin.url, berlin.token, berlin.pin)
    assert ("tagged", ("public",), ("tokyo",), True) == (
        berlin.exposure, berlin.tags, berlin.relays_for, berlin.relays_to,
    )  # fmt: skip
    assert {"dev": ("berlin/dev", "tokyo")} == berlin.scopes and berlin.of_file
    assert "rome" == peers.proven_peer(opened.core, "rome", TOKEN).system
    assert [] == applied(opened, tmp_path, FILE)


def test_what_is_left_out_is_as_by_default_again(opened: Room, tmp_path: Path) -> None:
    applied(opened, tmp_path, FILE)
    assert ["berlin"] == applied(
        opened, tmp_path, '[berlin]\nurl = "wss://berlin.example"\n[rome]\naccept_file = "secret"'
    )
    berlin = peers.known_peer(opened.core, "berlin")
    assert ("gateway", (), {}, (), False) == (
        berlin.exposure, berlin.tags, berlin.scopes, berlin.relays_for, berlin.relays_to,
    )  # fmt: skip
    assert (TOKEN, PIN) == (
        berlin.token,
        berlin.pin,
    )  # what was shown or pinned once is not forgotten by a restart


def test_who_is_gone_from_the_file_is_removed_and_who_was_added_by_hand_stays(
    opened: Room, tmp_path: Path
) -> None:
    perform(opened.core, OWNER, peers.AddPeer(system="vienna", fields={}))
    applied(opened, tmp_path, FILE)
    assert ["rome"] == applied(opened, tmp_path, FILE.partition("[rome]")[0])
    assert ["berlin", "vienna"] == list(peers.all_peers(opened.core))


def test_where_there_is_no_file_any_more_nobody_of_it_is_a_peer(opened: Room, tmp_path: Path) -> None:
    perform(opened.core, OWNER, peers.AddPeer(system="vienna", fields={}))
    applied(opened, tmp_path, FILE)
    assert ["berlin", "rome"] == options.apply(opened.core, "", "paris")
    assert ["vienna"] == list(peers.all_peers(opened.core))


def test_trust_that_was_withdrawn_by_hand_stays_withdrawn(opened: Room, tmp_path: Path) -> None:
    applied(opened, tmp_path, FILE)
    perform(opened.core, OWNER, peers.AddPeer(system="berlin", fields={"trusted": False}))
    applied(opened, tmp_path, FILE)
    assert not peers.known_peer(opened.core, "berlin").trusted


BAD = [
    ("[berlin\n", "peers.toml"),
    ('berlin = "x"', "berlin"),
    ('[berlin]\nurl = "wss://x"\ntoken = "secret"', "berlin.token"),
    ('[berlin]\nurl = "wss://x"', "berlin.token"),
    ("[berlin]", "berlin.accept_file"),
    ('[berlin]\nauth = "did:wba"', "berlin.auth"),
    ('[berlin]\nexposure = "some"\naccept_file = "secret"', "berlin.exposure"),
    ('[berlin]\noverflow = "drop-oldest"', "berlin"),
    ('[berlin]\nurl = "ws://berlin.example"\ntoken_file = "secret"', "berlin.url"),
    ('[berlin]\naccept_file = "secret"\nexposure = "tagged"', "berlin.tag"),
    ('[berlin]\naccept_file = "nowhere"', "berlin.accept_file"),
    ('[berlin]\naccept_file = "peers.toml"', "berlin.accept_file"),
    ('[berlin]\naccept_file = "secret"\npin = "abc"', "berlin.pin"),
    ('[berlin]\nauth = "mtls"\ncertificate_file = "secret"', "berlin.certificate_file"),
    ('[paris]\naccept_file = "secret"', "paris.system"),
    ('["a/b"]\naccept_file = "secret"', "a/b.system"),
    ('[Rome]\naccept_file = "secret"', "rome"),  # and [rome] below it
    ('[berlin]\naccept_file = "secret"', "rome.accept_file"),  # of both
    ('[berlin]\naccept_file = "other"\nrelays_for = ["Paris"]', "berlin.relays-for"),
    ('[berlin]\nauth = "none"\naccept_file = "other"', "berlin.token"),
    ('[berlin]\nauth = "mtls"\nurl = "wss://x"\ntoken_file = "other"', "berlin.token"),
]


@pytest.mark.parametrize(("text", "field"), BAD, ids=[text for text, _ in BAD])
def test_what_is_wrong_is_named_and_nothing_of_the_file_holds(
    opened: Room, tmp_path: Path, text: str, field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        applied(opened, tmp_path, f'{text}\n[rome]\naccept_file = "secret"')
    assert (refused.value.field or "").endswith(field) and refused.value.hint
    assert TOKEN not in str(refused.value)
    assert {} == peers.all_peers(opened.core)


@pytest.mark.parametrize(("name", "mode"), [("secret", 0o640), ("secret", 0o604), ("peers.toml", 0o666)])
def test_a_file_in_which_others_have_a_hand_is_refused(opened: Room, tmp_path: Path, name: str, mode: int) -> None:
    write(tmp_path, TOKEN, "secret")
    write(tmp_path, FILE)
    (tmp_path / name).chmod(mode)
    with pytest.raises(Invalid, match="others can") as refused:
        options.apply(opened.core, str(tmp_path / "peers.toml"), "paris")
    assert "chmod" in str(refused.value)


def test_the_file_beside_the_config_is_for_the_users_own_room_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("POSTROOM_", "XDG_", "INBOX_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "" == options_options(None, {}).peers
    (tmp_path / ".config/postroom").mkdir(parents=True)
    beside = write(tmp_path / ".config/postroom", "")
    assert str(beside) == options_options(None, {}).peers
    assert "" == options_options(str(tmp_path / "other.db"), {}).peers
    assert "" == options_options(None, {}, peers="off").peers
    assert str(tmp_path / "mine.toml") == options_options(str(tmp_path / "other.db"), {}, peers="mine.toml").peers
    monkeypatch.setenv("POSTROOM_PEERS", "/elsewhere.toml")
    assert "/elsewhere.toml" == options_options(None, {}).peers


def test_a_daemon_applies_it_when_it_starts_and_does_not_start_with_a_bad_one(tmp_path: Path) -> None:
    write(tmp_path, TOKEN, "secret")
    file = write(tmp_path, FILE)
    with Daemon(tmp_path, "--http", "off", "--peers", str(file)) as daemon:
        with postroom.open(tmp_path / "room.db") as room:
            assert ["berlin", "rome"] == list(peers.all_peers(room.core))
        log = daemon.log()
    assert "peers are as their file says" in log and TOKEN not in log
    write(tmp_path, '[berlin]\nauth = "did:wba"')
    with pytest.raises(AssertionError, match=r"did:wba.*berlin.auth"):
        Daemon(tmp_path, "--http", "off", "--peers", str(file))

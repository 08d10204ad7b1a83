"""One post room that runs, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.http.running import Daemon, daemon


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    words = ("--http", "127.0.0.1:0", "--set", "durability=process")
    with daemon(tmp_path_factory.mktemp("room"), *words, counted=True) as one:
        yield one


@pytest.fixture(scope="module")
def operator(running: Daemon) -> str:
    return running.token()


@pytest.fixture(scope="module")
def port(running: Daemon) -> int:
    return running.port


@pytest.fixture(scope="module")
def open_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    words = ("--http", "127.0.0.1:0", "--map", "open", "--set", "durability=process")
    with daemon(tmp_path_factory.mktemp("open"), *words, counted=True) as one:
        yield one.port

"""One post room that runs, for all tests of a file that leave it as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.server.http.running import Client, Daemon, daemon


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    words = ("--http", "127.0.0.1:0", "--set", "durability=process")
    with daemon(tmp_path_factory.mktemp("room"), *words, counted=True) as one:
        yield one


@pytest.fixture(scope="module")
def operator_token(running: Daemon) -> str:
    return running.token()


@pytest.fixture
def operator(running: Daemon, operator_token: str) -> Iterator[Client]:
    client = Client(running.port, operator_token)
    yield client
    client.close()


@pytest.fixture
def anonymous(running: Daemon) -> Iterator[Client]:
    client = Client(running.port)
    yield client
    client.close()


@pytest.fixture
def agent(running: Daemon) -> Iterator[Callable[..., Client]]:
    """Callers with tokens of their own: `agent(name, *scopes)`."""
    made: list[Client] = []

    def make(name: str, *scopes: str) -> Client:
        made.append(Client(running.port, running.token(name, *scopes)))
        return made[-1]

    yield make
    for client in made:
        client.close()

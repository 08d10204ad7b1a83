"""A process that sends one letter, and stops between its files and its commit until a line comes:
`… tests.files.slow_sender ROOT RECIPIENT…`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from postroom.store.files.layouts.base import layout_named
from postroom.store.files.transaction import FileTransaction
from tests.files.folders import opened
from tests.letters import letter, post


def main(root: str, *to: str) -> None:
    perform = FileTransaction._perform

    def slowly(transaction: FileTransaction) -> None:
        perform(transaction)
        print("written", flush=True)
        sys.stdin.readline()

    with pytest.MonkeyPatch.context() as patch, opened(Path(root), layout_named("nanobot")) as store:
        patch.setattr(FileTransaction, "_perform", slowly)
        store.commit([post(letter("m1", to))])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process that sends, and prints what was acknowledged: `… tests.files.sender ADDRESS SENDER PREFIX COUNT`."""

from __future__ import annotations

import sys

import postroom


def main(address: str, sender: str, prefix: str, count: str) -> None:
    with postroom.open(address, durability="process") as room:
        mailbox = room.mailbox(sender)
        for number in range(int(count)):
            mailbox.send("bob", f"{prefix}-{number}", subject="count me")
            print(f"{prefix}-{number}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

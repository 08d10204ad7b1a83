"""Broadcast with deadlines: announce work to a team, give each member a task, and see who misses the deadline.

Every step of a task is a letter, so nothing here is lost if a process is killed: run it again and it goes on.

    python examples/team_deadline.py
"""

import tempfile
import time
from datetime import UTC, datetime

import postroom

TEAM = ("ann", "bob", "carol")
DEADLINE = 2.0  # seconds


def main(address: str) -> None:
    with postroom.open(address) as room:
        lead = room.mailbox("lead")
        for name in TEAM:
            room.mailbox(name).register(scopes=["release"])
        lead.broadcast("release", "Each of you gets one check before the release.", subject="Release")
        tasks = [
            lead.task(lead.give_task(name, "Run your checks.", subject=f"Checks of {name}", deadline=DEADLINE).id)
            for name in TEAM
        ]

        # Each member works in a process of its own in real life. Carol never looks at her mail.
        for name in ("ann", "bob"):
            member = room.mailbox(name)
            for task in member.tasks():
                task.accept()
                task.complete(f"{name} found nothing wrong")

        late = time.monotonic() + DEADLINE
        while time.monotonic() < late and not all(task.is_final for task in tasks):
            lead.wait(timeout=0.2)
            for task in tasks:
                task.refresh()
        now = datetime.now(UTC)
        for task in tasks:
            overdue = not task.is_final and task.deadline is not None and task.deadline <= now
            print(f"{task.receiver}: {task.state}{', past its deadline' if overdue else ''}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:{folder}/room.db")

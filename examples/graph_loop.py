"""A graph of agents without a graph library: each node is a mailbox, each edge is a letter, the state is its data.

A planner drafts, a critic accepts or sends the draft back, a publisher ends the run. The state travels in the
letters, so a run survives the death of any node: its letter goes back to the inbox, and another process takes it.

    python examples/graph_loop.py
"""

import tempfile
import threading
from collections.abc import Callable
from typing import Any

import postroom
from postroom import Mailbox, Work

State = dict[str, Any]
END = "user"


def plan(state: State) -> tuple[str, State]:
    draft = f"{state['topic']}, draft {state['drafts'] + 1}"
    return "critic", {**state, "draft": draft, "drafts": state["drafts"] + 1}


def review(state: State) -> tuple[str, State]:
    """The edge with a condition: back to the planner until the third draft."""
    return ("planner" if state["drafts"] < 3 else "publisher"), state


def publish(state: State) -> tuple[str, State]:
    return END, {**state, "published": True}


NODES: dict[str, Callable[[State], tuple[str, State]]] = {"planner": plan, "critic": review, "publisher": publish}


def run_node(mailbox: Mailbox) -> None:
    """Carry out one node: take the state, and pass it on in the commit that acknowledges it."""

    def step(work: Work) -> None:
        target, state = NODES[mailbox.name](work.data)
        print(f"{mailbox.name} -> {target}: {state['draft']}")
        work.ack_and_send([postroom.draft(target, data=state)])

    mailbox.serve(step)


def main(address: str) -> None:
    with postroom.open(address) as room:
        mailboxes = [room.mailbox(name) for name in NODES]
        nodes = [threading.Thread(target=run_node, args=(mailbox,)) for mailbox in mailboxes]  # usually processes
        for node in nodes:
            node.start()
        user = room.mailbox(END)
        user.send("planner", data={"topic": "Stable sorts", "drafts": 0})
        result = user.wait(timeout=30)
        print("result:", result.data if result else "none came")
        for mailbox, node in zip(mailboxes, nodes, strict=True):
            mailbox.stop()
            node.join()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:{folder}/room.db")

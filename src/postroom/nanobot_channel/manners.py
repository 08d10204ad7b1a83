"""Who is answered by itself, and how often. What ends a chat between two polite agents stands here, not in a
prompt.

An answer that we mail by ourselves says so, and such a letter is never answered by itself. A letter to many is
not, nor is a notification. What a model writes in a turn that mail began goes to somebody else, as a relay with
its hops counted, or is the answer. And nobody is written to, or listened to, more often than the pace allows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from ..model.message import is_broadcast
from ..model.task import TASK_UPDATE

if TYPE_CHECKING:
    from ..model.delivery import Delivery
    from ..model.message import Message

MARK = "auto_submitted"  # in a letter's metadata, as RFC 3834 has it in a header
AUTOMATIC = {MARK: "auto-replied"}
UNANSWERED = frozenset({TASK_UPDATE, "notification", "response", "completion_report", "merge_notification"})
PER_MINUTE = 20  # letters to one peer, and turns begun by the letters of one peer
MOST_ROUNDS = 10  # results and new errands in one session, with no word of its person in between
MOST_REFUSALS = 3  # told in one chat, with no word of its person in between
MINUTE = 60.0


def is_automatic(letter: Message) -> bool:
    """Was this written by a house or a program by itself?"""
    return letter.is_automatic or letter.metadata.get(MARK, "no") != "no"


def wants_answer(letter: Message, delivery: Delivery) -> bool:
    """Is the model's last word mailed back to whoever sent this?"""
    to_many = any(is_broadcast(recipient.address) for recipient in letter.recipients)
    return not is_automatic(letter) and letter.kind not in UNANSWERED and delivery.kind == "to" and not to_many


class Pace:
    """So many in a minute, for each peer. `now` is handed in, in seconds of any steady clock."""

    def __init__(self, most: int = PER_MINUTE) -> None:
        self._most = most
        self._seen: defaultdict[str, deque[float]] = defaultdict(deque)

    def allows(self, peer: str, now: float) -> bool:
        """Counts one more, if there is room for it."""
        seen = self._seen[peer]
        while seen and now - seen[0] >= MINUTE:
            seen.popleft()
        if len(seen) >= self._most:
            return False
        seen.append(now)
        return True

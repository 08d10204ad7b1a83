"""Auto-reply rules: which letters get an automatic answer, and how many. They end a chat between two polite
agents.

- An automatic answer is marked as such. A marked letter, a letter to many and a notification get none.
- In a turn that mail began, the model's text is the answer. What it sends to another agent is a relay with its
hops
  counted.
- No peer is written to, or handled, more often than the rate limit allows; letters over the limit wait.
- The mail of an agent to one peer without a person's word in between is limited, per conversation and over all
  conversations (G11).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from ...model.message import is_broadcast
from ...model.names import fold
from ...model.task import TASK_UPDATE

if TYPE_CHECKING:
    from ...model.delivery import Delivery
    from ...model.message import Message


MARK = "auto_submitted"  # in a letter's metadata, as RFC 3834 has it in a header
AUTOMATIC = {MARK: "auto-replied"}
UNANSWERED = frozenset({TASK_UPDATE, "notification", "response", "completion_report", "merge_notification"})
MOST_ROUNDS = 10  # results and new mails in one session without a word of its person
MOST_REFUSALS = 3  # refusals reported in one chat without a word of its person
MINUTE, HOUR = 60.0, 3600.0  # seconds
EVERYWHERE = ""  # instead of one conversation: all of them
MOST_PLACES = 10_000  # conversations counted at once


def is_automatic(letter: Message) -> bool:
    """Return whether the room or a program wrote this letter automatically."""
    return letter.is_automatic or letter.metadata.get(MARK, "no") != "no"


def wants_answer(letter: Message, delivery: Delivery) -> bool:
    """Return whether the model's final answer is mailed to the sender of this letter."""
    to_many = any(is_broadcast(recipient.address) for recipient in letter.recipients)
    return not is_automatic(letter) and letter.kind not in UNANSWERED and delivery.kind == "to" and not to_many


class Pace:
    """A rate limit: at most `most` events per peer within `window` seconds. `now` is monotonic time."""

    def __init__(self, most: int, window: float = MINUTE) -> None:
        self.most = most
        self._window = window
        self._seen: defaultdict[str, deque[float]] = defaultdict(deque)

    def wait(self, peer: str, now: float) -> float:
        """Return for how many seconds the next event of this peer must wait."""
        seen = self._seen[fold(peer)]
        while seen and now - seen[0] >= self._window:
            seen.popleft()
        return 0.0 if len(seen) < self.most else self._window - (now - seen[0])

    def allows(self, peer: str, now: float) -> bool:
        """Count one more event and return True, unless the limit is reached."""
        if self.wait(peer, now):
            return False
        self._seen[fold(peer)].append(now)
        return True

    def waiting(self, now: float) -> frozenset[str]:
        """Return the folded names of the peers whose next event must wait."""
        found = frozenset(peer for peer in tuple(self._seen) if self.wait(peer, now))
        self._seen = defaultdict(deque, {peer: seen for peer, seen in self._seen.items() if seen})
        return found

    def clear(self) -> None:
        self._seen.clear()


class SendBlock(NamedTuple):
    """The reason why a mail may not be sent now, and whether it is the first one to be reported."""

    why: str
    is_first: bool


class Automatic:
    """Counts of the automatic mail of one agent, reset when a person writes (G11).

    Mails are counted per peer and conversation, and per peer over all conversations within an hour. `replies`
    limits the turns begun by replies to our mails: it slows down a program that answers every automatic answer.
    """

    def __init__(self, per_conversation: int, per_hour: int) -> None:
        self.replies = Pace(per_hour, HOUR)
        self._most = per_conversation
        self._mails = Pace(per_hour, HOUR)
        self._counts: Counter[tuple[str, str]] = Counter()  # by conversation and peer
        self._stopped: set[tuple[str, str]] = set()  # conversations and peers whose stop was reported

    def stop(self, place: str, peer: str, rounds: int, now: float) -> SendBlock | None:
        """Count one more mail, or return why it may not be sent. `rounds` is the length of the chain of results
        that led to it; it is stored with each letter and so survives a restart.
        """
        key = place, fold(peer)
        if max(rounds, self._counts[key]) >= self._most:
            why = f"{self._most} mails or rounds in one conversation without a word of the person"
            return SendBlock(why, is_first=self.is_first(peer, place))
        if not self._mails.allows(peer, now):
            why = f"{self._mails.most} mails to {peer} within an hour without a word of the person"
            return SendBlock(why, is_first=self.is_first(peer))
        self._counts[key] += 1
        if len(self._counts) > MOST_PLACES:
            del self._counts[next(iter(self._counts))]  # the oldest
        return None

    def is_first(self, peer: str, place: str = EVERYWHERE) -> bool:
        """Return whether this is the first stop there since a person wrote. Only the first is reported."""
        before = len(self._stopped)
        self._stopped.add((place, fold(peer)))
        return len(self._stopped) > before

    def person_wrote(self, place: str = EVERYWHERE) -> None:
        """Reset the counts: of the conversation in which a person wrote, or all after a person's letter."""
        self._mails.clear()
        self.replies.clear()
        over = {EVERYWHERE, place}
        self._stopped = {key for key in self._stopped if place and key[0] not in over}
        self._counts = Counter({key: count for key, count in self._counts.items() if place and key[0] not in over})

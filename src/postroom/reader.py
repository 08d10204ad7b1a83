"""The queries that a room answers about all mailboxes, and a mailbox about its own letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from .core.board import BoardView
    from .core.verb import Runs
    from .core.waiting_list import Entry
    from .model.alert import DeadAlertRow
    from .model.message import Message
    from .model.report import Trace
    from .model.task import Escalation
    from .model.thread import Conversation, Thread, Turn

    T = TypeVar("T")


class Reader:
    """The queries of `Room`, about all mailboxes, and of `Mailbox`, about what its agent sent or received."""

    def _ask(self, verb: Callable[..., Runs[T]], **params: Any) -> T:
        raise NotImplementedError

    def thread(self, id: str) -> list[Message]:
        """Return the letters of a thread, the oldest first.

        Args:
            id: its id, that of its first letter
        """
        from .core import threads

        return self._ask(threads.GetThread, thread=id).letters

    def tagged(self, tag: str, scope: str | None = None) -> list[Message]:
        """Return the letters with a thread tag, the oldest first.

        Args:
            tag: the tag
            scope: only of this scope
        """
        from .core import threads

        return self._ask(threads.GetTagged, tag=tag, scope=scope).letters

    def search(self, query: str, *, limit: int = 20, ranked: bool = False) -> list[Message]:
        """Find letters by their text: the newest first, or, ranked, the best.

        The query holds words, "a phrase", from: to: tag: kind: thread: before: after:, and - before a word or
        phrase that must not occur.

        Args:
            query: words, phrases, from: to: tag: kind: thread: before: after:
            limit: how many at most
            ranked: the best first, not the newest
        """
        from .core import search

        return self._ask(search.Search, query=query, limit=limit, ranked=ranked).letters

    def threads(self, limit: int = 50) -> list[Thread]:
        """Return threads with replies, the most recently active first.

        Args:
            limit: how many at most
        """
        from .core import threads

        return self._ask(threads.ListThreads, limit=limit)

    def conversations(self, *, scope: str | None = None, limit: int = 50) -> list[Conversation]:
        """Return conversations, the most recently active first.

        Args:
            scope: only of this scope
            limit: how many at most
        """
        from .core import threads

        return self._ask(threads.ListConversations, scope=scope, limit=limit)

    def turns(self, conversation: str) -> list[Turn]:
        """Return the turns of a conversation, in their order.

        Args:
            conversation: its id
        """
        from .core import threads

        return self._ask(threads.ListTurns, conversation=conversation)

    def escalations(self, *, open_only: bool = True, limit: int | None = None) -> list[Escalation]:
        """Return escalated questions, the oldest first; `waits_for` names the agent that must answer.

        Args:
            open_only: false: also those that are closed
            limit: how many at most
        """
        from .core import escalation

        return self._ask(escalation.ListEscalations, open_only=open_only, limit=limit)

    def waiting(self, *, limit: int | None = None, opened: bool = False, mail: bool = True) -> list[Entry]:
        """Return what waits, urgent things first, with the `mailbox` of each; `opened` adds read letters.

        Args:
            limit: how many at most
            opened: also letters that were read and are not settled
            mail: false: only what goes on by a step of the agent
        """
        from .core import waiting_list

        return self._ask(waiting_list.Waiting, limit=limit, opened=opened, mail=mail).waiting

    def board(self, limit: int = 20) -> BoardView:
        """Return who waits for whom, and what is stuck; at most so many entries of each list.

        Args:
            limit: how many entries of each list at most
        """
        from .core import board

        return self._ask(board.Board, limit=limit)

    def trace(self, id: str) -> Trace:
        """Return the history of one letter, with every delivery and its outcome.

        Args:
            id: the letter's id
        """
        from .core import stats

        return self._ask(stats.GetTrace, id=id)

    def dead_alerts(self, limit: int | None = None) -> list[DeadAlertRow]:
        """Return alerts that were given up, for letters that are still unread.

        Args:
            limit: how many at most
        """
        from .core import alerts

        return self._ask(alerts.DeadAlerts, limit=limit)

    def retry_alerts(self, *, way: str | None = None, ids: str | Sequence[str] | None = None) -> int:
        """Try given-up alerts again, and return how many.

        Args:
            way: only by this channel
            ids: only of these letters
        """
        from .core import alerts

        return self._ask(alerts.RetryAlerts, way=way, ids=ids)

    dead_rings, retry_rings = dead_alerts, retry_alerts  # deprecated names

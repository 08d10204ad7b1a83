"""A wish, done at the mailbox. Each is one commit of a verb that the other commands have, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import Conflict, IllegalMove
from ..waiting import waiting_for
from . import verbs
from .desk import GONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...mailbox import Mailbox
    from ..waiting import Entry
    from .desk import Do

    Deed = Callable[[Mailbox, Entry, str, dict[str, Any]], object]


def do(box: Mailbox, wish: Do) -> str:
    """Do it, and say what was done; or a refusal, and nothing was."""
    _check_waiting(box, wish.entry)
    deed, told = _DEEDS[wish.verb.name]
    try:
        deed(box, wish.entry, wish.words, {"key": wish.retry} if wish.retry else {})
    except IllegalMove:  # somebody was quicker, between the look and this
        _check_waiting(box, wish.entry)
        raise
    return told.format(wish.entry["from"])


def _check_waiting(box: Mailbox, entry: Entry) -> None:
    """Whoever was quicker, here or elsewhere, decided it: a second answer would only confuse."""
    now = {one["letter"]: one for one in waiting_for(box, opened=True)}.get(entry["letter"])
    if now is None:
        raise Conflict(f"{GONE} Nothing was done.")
    if now["state"] != entry["state"]:
        raise Conflict(f"The task is {now['state']} by now. Nothing was done.")


def _answer(box: Mailbox, entry: Entry, words: str, fields: dict[str, Any]) -> None:
    """Done with the letter, and answered, by whoever is first: once it is seen open, the commit sees to that."""
    letter = box.read(entry["letter"])
    _check_waiting(box, entry)
    letter.ack_and_reply(words, **fields)


def _say(word: str) -> Deed:
    """An answer that begins with this word."""
    return lambda box, entry, words, fields: _answer(box, entry, f"{word}: {words}" if words else word, fields)


_DEEDS: dict[str, tuple[Deed, str]] = {
    verbs.APPROVE.name: (_say("approved"), "Approved; {} is told."),
    verbs.DECLINE.name: (_say("declined"), "Declined; {} is told."),
    verbs.REPLY.name: (_answer, "Answered {}."),
    verbs.ANSWER.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).answer(words, **fields),
        "Answered {}.",
    ),
    verbs.ACCEPT.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).accept(words or None, **fields),
        "Accepted; {} is told. It waits here until it is complete.",
    ),
    verbs.REJECT.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).reject(words, **fields),
        "Rejected; {} is told why.",
    ),
    verbs.COMPLETE.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).complete(words or None, **fields),
        "Complete; {} has the result.",
    ),
    verbs.FAIL.name: (
        lambda box, entry, words, fields: box.task(entry["id"]).fail(words, **fields),
        "Given up; {} is told why.",
    ),
    verbs.WRITE.name: (
        lambda box, entry, words, fields: box.reply(entry["letter"], words, **fields),
        "Written to {}.",
    ),
    verbs.DONE.name: (lambda box, entry, _words, _fields: box.read(entry["letter"]).ack(), "Done with it."),
}

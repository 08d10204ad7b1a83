"""Letters never change: is what a file says what was accepted?

States may change, and strangers may add fields of their own. All else is damage, or none of their business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...model.hashing import blake2b
from ...model.message import OWN_NOTES
from . import letters
from .layouts.base import OWN

if TYPE_CHECKING:
    from ...model.message import Message
    from .layouts.base import Layout
    from .letters import Sheet


def is_same(first: Message, second: Message) -> bool:
    """The same letter, whoever else got it, and whatever strangers wrote into it beside what it says."""
    return replace(first, recipients=(), extra={}) == replace(second, recipients=(), extra={})


def is_as_accepted(layout: Layout, known: Message, sheet: Sheet, folder: str, name: str) -> bool:
    """Is this the letter that the index knows?"""
    message = sheet.message
    if known.id != message.id:  # it may be a second letter with the same id
        message = replace(message, id=another_id(message.id, folder, name))
    if not is_same(known, message):
        return False
    strange = [r for r in sheet.message.recipients if r not in known.recipients and r.address != sheet.mailbox]
    return not strange and not _is_misspelt(layout, known, sheet, name)


def another_id(id: str, folder: str, name: str) -> str:
    """Of a second letter with the same id: from where it lies, so that it is always the same."""
    home = folder.partition("/")[0]
    return f"{id[:180]}.{blake2b(f'{home}/{name}'.encode(), digest_size=5).hexdigest()}"


def _is_misspelt(layout: Layout, known: Message, sheet: Sheet, name: str) -> bool:
    """A field is missing, and another is there that nobody knew: one damaged byte in its name does that."""
    if sheet.message.extra.keys() <= known.extra.keys():
        return False
    written = letters.fields_of(layout, known, sheet.mailbox, name=name, order=sheet.order)
    missing = written.keys() - sheet.fields.keys()
    if OWN_NOTES & sheet.fields.keys():  # earlier versions wrote those beside our key, and maybe nothing under it
        missing -= {OWN}
    return bool(missing)

"""Names and numbers that the quick look shares with the store and the model. It imports nothing."""

ROOM_APPLICATION = 0x506F7374  # "Post": marks a SQLite file as a room
INDEX_APPLICATION = (
    0x506F7369  # "Posi": marks a SQLite file as the index of mail folders, which is no room by itself
)

# Bytes of the lock file beside a room.
WARNING_AT = 20  # "!" after a failed sync
NOTE_AT = 32  # the note of how far the room reached (store/sqlite/note.py)

# The answers of `check` and `digest` for a mailbox without unread mail.
NO_MAIL = "No unread mail for {0}.\n"
NO_DIGEST = "You have no unread letters.\n"

HUMAN = "human"
ONE_MAILBOX = {"user": HUMAN, "ceo": HUMAN}  # other names of the person's mailbox

# `<agent>.inbox.jsonl`: the characters of a name that stay in the name of its file.
_SAFE_IN_FILES = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def safe_form(name: str) -> str:
    """Return a name as agent-inbox writes it in the name of a file."""
    return "".join(letter if letter in _SAFE_IN_FILES else "_" for letter in name)

"""A full screen on a terminal: drawn in place, and restored as it was, however the program ends."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ..environment import Uninterrupted
from .output import width

if TYPE_CHECKING:
    from collections.abc import Iterator


NARROWEST = 20  # columns
_ENTER = "\033[?1049h\033[?25l"  # the alternate screen, without a cursor
_LEAVE = "\033[?25h\033[?1049l"
_HOME, _REST_OF_LINE, _REST = "\033[H", "\033[K", "\033[J"
_SHOW_CURSOR, _HIDE_CURSOR = "\033[?25h", "\033[?25l"
_COLOUR = re.compile(r"\033\[[0-9;]*m")
_QUIT = b"qQ"
_ENDS = (signal.SIGTERM, signal.SIGHUP)  # signals that end the program, after the terminal is restored


class Frame(NamedTuple):
    """The lines of a screen, and the row and column of the cursor, from 0."""

    lines: list[str]
    cursor: tuple[int, int] | None = None


class Wakeup(NamedTuple):
    """The reason why a wait ended: keys, a notification, or a terminal that is gone; none if the time was up."""

    keys: bytes = b""
    notified: bool = False
    gone: bool = False


Picture = Callable[[os.terminal_size], Frame | list[str]]


class LiveScreen:
    """A full screen as a context manager. Keys are not echoed; Ctrl-C and Ctrl-Z work as usual."""

    enter, leave = _ENTER, _LEAVE

    def __init__(self) -> None:
        self._taken = False
        self._keyboard_mode: list[Any] | None = None  # as it was before
        self._picture: Picture | None = None
        self._has_cursor = False
        self._former: dict[int, Any] = {}

    def draw(self, picture: Picture) -> None:
        """Draw a screen with one write, line over line, so that nothing flickers."""
        self._picture = picture
        size = self.size()
        drawn = picture(size)
        frame = drawn if isinstance(drawn, Frame) else Frame(drawn)
        lines = [_wiped(line, size.columns) for line in frame.lines]
        is_full = frame.lines[-1:] == lines[-1:] != []
        text = _HOME + "\r\n".join(lines) + ("" if is_full else _REST)
        if self._has_cursor:
            text = _HIDE_CURSOR + text
        if frame.cursor is not None:
            text += f"\033[{frame.cursor[0] + 1};{frame.cursor[1] + 1}H{_SHOW_CURSOR}"
        self._has_cursor = frame.cursor is not None
        _write(text)

    def size(self) -> os.terminal_size:
        """Return the size of the terminal, with a minimum: some terminals report a size of 0."""
        size = os.terminal_size((0, 0))
        with suppress(OSError):
            size = os.get_terminal_size(sys.stdout.fileno())
        return os.terminal_size((max(size.columns or 80, NARROWEST), size.lines or 24))

    def sleep(self, seconds: float) -> bool:
        """Wait; return False where the user presses `q` or the terminal is gone. Other keys are ignored."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            received = self.listen(left)
            if received.gone or any(key in _QUIT for key in received.keys):
                return False
        return True

    def listen(self, seconds: float, watch: int = -1) -> Wakeup:
        """Wait for a key, or a notification at this descriptor. A terminal that changes its size is redrawn."""
        end = time.monotonic() + seconds
        keyboard = [sys.stdin.fileno()] if self._keyboard_mode else []
        descriptors = [*keyboard, self._wakes, *([watch] if watch >= 0 else [])]
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select(descriptors, [], [], left)
            if self._wakes in ready:
                os.read(self._wakes, 4096)
                if self._picture:
                    self.draw(self._picture)
            if set(ready) & set(keyboard):
                keys = os.read(sys.stdin.fileno(), 1024)
                return Wakeup(keys=keys, gone=not keys)
            if watch in ready:
                return Wakeup(notified=True)
        return Wakeup()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the terminal to another program. Its Ctrl-C does not interrupt us; Ctrl-Z stops both."""
        keyboard = self._keyboard_mode
        self._give_back()
        ours = {
            signal.SIGINT: signal.signal(signal.SIGINT, _ignore),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, signal.SIG_DFL),
        }
        try:
            yield
        finally:
            for number, action in ours.items():
                signal.signal(number, action)
            self._take()
            self._keyboard_mode = keyboard  # as it was before both programs

    def __enter__(self) -> Self:
        self._wakes, self._wake = os.pipe()
        for end in (self._wakes, self._wake):
            os.set_blocking(end, False)
        try:
            with Uninterrupted():
                signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
                self._handle(signal.SIGINT, self._interrupt)
                self._handle(signal.SIGWINCH, _ignore)
                self._handle(signal.SIGTSTP, self._suspend)
                for ending in _ENDS:
                    self._handle(ending, self._die)
                self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *how: object) -> None:
        signal.signal(signal.SIGINT, _ignore)  # a second Ctrl-C must not keep the terminal from being restored
        self._give_back()
        signal.set_wakeup_fd(-1)
        os.close(self._wakes)
        os.close(self._wake)
        for number, former in self._former.items():
            signal.signal(number, former)

    def _handle(self, number: int, action: Any) -> None:
        self._former[number] = signal.signal(number, action)

    def _take(self) -> None:
        if sys.stdin is not None and sys.stdin.isatty():
            with suppress(termios.error):
                self._keyboard_mode = termios.tcgetattr(sys.stdin)
                quiet = termios.tcgetattr(sys.stdin)
                quiet[3] &= ~(termios.ICANON | termios.ECHO)
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
        self._taken = True
        self._has_cursor = False
        _write(self.enter)

    def _give_back(self) -> None:
        if not self._taken:
            return
        with suppress(OSError):
            _write(self.leave)
        if self._keyboard_mode:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._keyboard_mode)
        self._taken = False

    def _suspend(self, number: int, _frame: object) -> None:
        """On Ctrl-Z, restore the terminal and stop; take it again when the program continues."""
        self._give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._suspend)
        self._take()
        if self._picture:
            self.draw(self._picture)

    def _interrupt(self, number: int, _frame: object) -> None:
        """On Ctrl-C, restore the terminal before anything else: a second Ctrl-C may follow at once."""
        signal.signal(number, _ignore)
        self._give_back()
        raise KeyboardInterrupt

    def _die(self, number: int, _frame: object) -> None:
        self._give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _wiped(line: str, columns: int) -> str:
    """Return a line that clears the rest of its row. A full line does not: its last character would be cleared."""
    return line if width(_COLOUR.sub("", line)) >= columns else line + _REST_OF_LINE


def _ignore(*_: object) -> None:
    """Handle a signal by nothing but the byte in the wakeup pipe."""


def _write(text: str) -> None:
    """Write past Python's buffers: a signal handler may write in the middle of another write."""
    left = text.encode("utf-8", "backslashreplace")
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]

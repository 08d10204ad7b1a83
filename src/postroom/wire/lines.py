"""Lines of JSON out of a stream of bytes. Characters may be split anywhere. A line that is too long is dropped;
what follows it is read again.
"""

from __future__ import annotations


class Lines:
    """What came in, line by line. Never holds more than one line and one packet."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._skipping = False  # inside a line that is too long

    def feed(self, packet: bytes) -> list[bytes | None]:
        """The lines that are whole now; None stands for one that was too long."""
        if not self._rest and not self._skipping and packet.find(b"\n") == len(packet) - 1 <= self._longest:
            return [packet[:-1]] if packet.strip() else []  # one line and nothing else, as mostly
        found: list[bytes | None] = []
        *whole, rest = packet.split(b"\n")
        if whole:
            first, self._rest = bytes(self._rest) + whole[0], bytearray()
            whole[0] = b"" if self._skipping else first
            self._skipping = False
            found += [line if len(line) <= self._longest else None for line in whole if line]
        if not self._skipping:
            self._rest += rest
            if len(self._rest) > self._longest:
                self._rest.clear()
                self._skipping = True
                found.append(None)
        return [line for line in found if line is None or line.strip()]

    def last(self) -> list[bytes | None]:
        """The end of the stream: a line without its end is a line too."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest.strip() and not self._skipping else []

"""Tellings: the moments in which a recipient was told of mail, by whatever bells it has. Facts, like rings."""

from __future__ import annotations

from msgspec import Struct


class Telling(Struct, frozen=True, kw_only=True):
    """The first bell began it; others joined, for what had come by then."""

    number: int  # no other telling of this recipient has it
    at: float  # when it began, by uptime
    up_to: int  # it is for letters that came up to this number
    rung: int  # letters rung for, counted at each bell, less those of which that failed


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the bells of one recipient must remember together."""

    boot: str = ""  # of the machine; times of an earlier one mean nothing
    number: int = 0  # of the last telling that began, whatever came of it
    tellings: tuple[Telling, ...] = ()  # of the last hour; not those of which no bell got through

    @property
    def last(self) -> Telling | None:
        return self.tellings[-1] if self.tellings else None

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(one.at for one in self.tellings)

"""Files that are nearly letters: letters of each layout with a field, some bytes, the name or the time changed."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from postroom.model.message import Message
from postroom.store.files.layouts.base import OWN, Layout
from tests.files.folders import home, inbox, letters_in, room
from tests.files.test_strangers import OLD, drop

SECOND = 1_000_000_000  # nanoseconds
TIMES = [
    *[0, -1, -11_676_096_000, 10_413_792_000, 2**33, -(2**33), 2**31, 253_402_300_800, 2**62, -(2**62)],
    *[9_223_372_036, 9_223_372_037, -9_223_372_036, -9_223_372_037, 4_102_444_800],
]
NASTY: list[Any] = [
    *[None, True, False, 0, -1, 1, 2, 10**6, 2**31, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64, 10**40, -(10**40)],
    *[0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan")],
    *["", " ", "x", "\0", "\x1b[2J", "a\nb", "\ud800", "\u202e", "é" * 300, "x" * 70_000, "..", "../etc", "a/b"],
    *["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-23:59", "1600-01-01T00:00:00"],
    *["2300-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "2030-13-45", "now", "urgent", "Carol", "CAROL"],
    *["carol", "postmaster", "user", "broadcast:all", "any:thing", "bob@else", "task", "task_update", "bounce"],
    *[[], {}, [[]], [None], [{}], {"": ""}, [1, "x", None, {}], {"id": 1}, {"type": "text"}],
    *[{"type": "text", "text": 1}, {"id": "t", "state": "pending"}, {"id": "t", "state": "zzz"}],
    {"state": "dead", "reason": "x", "dead_at": 1},
    *[{"due_at": "9999-12-31T23:59:59.999999Z"}, {"state": "dead", "reason": "\ud800"}, {"address": "bob"}],
    *[[{"address": "bob", "kind": "to"}, {"address": "carol", "kind": "bcc"}], [{"address": "x" * 5000}]],
]  # fmt: skip
DEEP = [20, 60, 71, 80, 900, 5_000, 60_000]
OF_OURS = [*Message.__struct_fields__, "order", "seats", "delivery", "subject"]
BYTES = [b"\0", b"\xff", b'"', b"\\", b"{", b"}", b"9" * 400, b"\xed\xa0\x80", b"\xef\xbb\xbf"]
NAMES = [b"\xff\xfe", b"a\nb", b"\x1b[2J", b"'\"", b"%s %d", b"-rf", b"\xe2\x80\xae", b"e\xcc\x81", b"x" * 240]


class Mutant(Struct, frozen=True):
    """A file to be put into a folder of mail."""

    how: str
    folder: Path
    name: bytes
    content: bytes
    time: int = OLD[0] * SECOND  # of its last change, in nanoseconds
    kind: str = "file"

    def drop(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = os.fsencode(self.folder) + b"/" + self.name
        if os.path.lexists(path):
            return
        if self.kind == "folder":
            os.mkdir(path)  # noqa: PTH102 - its name may be any bytes
        elif self.kind == "pipe":
            os.mkfifo(path)
        elif self.kind == "link":
            os.symlink("/etc/hostname", path)  # noqa: PTH211 - as above
        else:
            with open(path, "wb") as file:
                file.write(self.content)
            os.utime(path, ns=(self.time, self.time))


class Mutants:
    """Made from letters of strangers and of our own, by chance that can be repeated."""

    def __init__(self, root: Path, layout: Layout, samples: list[tuple[str, dict[str, Any]]], seed: int) -> None:
        self._root, self._layout = root, layout
        self._samples = samples
        self._chance = Random(seed)
        self._ways: list[Callable[[str, dict[str, Any]], Mutant]] = [
            *[self._field, self._field, self._our_field, self._our_field, self._several],
            *[self._deep, self._bytes, self._bytes, self._named, self._timed, self._twin, self._no_file],
        ]
        self._count = 0

    def make(self, count: int) -> Iterator[Mutant]:
        for _ in range(count):
            name, fields = self._chance.choice(self._samples)
            self._count += 1
            yield self._chance.choice(self._ways)(name, json.loads(json.dumps(fields)))

    # -- ways

    def _field(self, name: str, fields: dict[str, Any]) -> Mutant:
        return self._written("field " + self._change(fields), name, fields)

    def _our_field(self, name: str, fields: dict[str, Any]) -> Mutant:
        field, value = self._chance.choice(OF_OURS), self._chance.choice(NASTY)
        own = self._layout.own(fields) | {field: value}
        self._layout.set_own(fields, own)
        return self._written(f"{OWN}.{field} = {value!r:.80}", name, fields)

    def _several(self, name: str, fields: dict[str, Any]) -> Mutant:
        changes = [self._change(fields) for _ in range(self._chance.randint(2, 6))]
        return self._written(f"fields {changes}", name, fields)

    def _deep(self, name: str, fields: dict[str, Any]) -> Mutant:
        depth, field = self._chance.choice(DEEP), self._chance.choice(list(fields))
        mark = "a mark that is replaced"
        opens, closes = self._chance.choice([("[", "]"), ('{"x":', "}")])
        inside = json.dumps(fields | {field: mark}).replace(json.dumps(mark), opens * depth + "1" + closes * depth)
        return self._made(f"{field} is {depth} deep", name, inside.encode())

    def _bytes(self, name: str, fields: dict[str, Any]) -> Mutant:
        chance = self._chance
        raw = bytearray(json.dumps(fields, ensure_ascii=chance_of(chance, 0.5)).encode())
        way = chance.choice(["flip", "cut", "insert", "remove", "empty", "noise"])
        at = chance.randrange(len(raw))
        if way == "flip":
            raw[at] ^= 1 << chance.randrange(8)
        elif way == "cut":
            del raw[at:]
        elif way == "insert":
            raw[at:at] = chance.choice(BYTES)
        elif way == "remove":
            del raw[at : at + chance.randint(1, 20)]
        else:
            raw = bytearray(chance.randbytes(200) if way == "noise" else b"")
        return self._made(f"{way} at {at}", name, bytes(raw))

    def _named(self, name: str, fields: dict[str, Any]) -> Mutant:
        made = self._written("name", name, fields)
        beginning, ending = self._layout.beginning.encode(), self._layout.ending.encode()
        middle = self._chance.choice([*NAMES, b"%d_" % self._chance.choice([0, 10**9, 10**13, 10**16 - 1])])
        number = b"%d" % self._count
        middle = (middle + number)[-(255 - len(beginning) - len(ending)) :]
        longest = b"x" * (255 - len(beginning) - len(ending) - len(number)) + number
        chosen = self._chance.choice([middle, middle, longest])
        return Mutant("name", made.folder, beginning + chosen + ending, made.content)

    def _timed(self, name: str, fields: dict[str, Any]) -> Mutant:
        made, time = self._written("time", name, fields), self._chance.choice(TIMES) * SECOND
        return Mutant(f"written at {time}", made.folder, made.name, made.content, time)

    def _twin(self, name: str, fields: dict[str, Any]) -> Mutant:
        """A copy under another id, and sometimes with the same key or with something else changed."""
        self._layout.set_own(fields, self._layout.own(fields) | {"key": f"key {self._chance.randrange(3)}"})
        if "id" in fields and chance_of(self._chance, 0.8):
            fields["id"] = f"{fields['id']}-{self._count}"
        if chance_of(self._chance, 0.3):
            self._change(fields)
        return self._written("twin", name, fields)

    def _no_file(self, name: str, fields: dict[str, Any]) -> Mutant:
        kind = self._chance.choice(["folder", "pipe", "link"])
        made = self._written(kind, name, fields)
        return Mutant(kind, made.folder, made.name, b"", kind=kind)

    # -- pieces

    def _change(self, fields: dict[str, Any]) -> str:
        """Somewhere in it, maybe deep."""
        at: Any = fields
        steps: list[Any] = []
        while True:
            step = self._chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
            steps.append(step)
            if not (isinstance(at[step], (dict, list)) and at[step] and chance_of(self._chance, 0.7)):
                break
            at = at[step]
        value = copy.deepcopy(self._chance.choice(NASTY))
        if chance_of(self._chance, 0.2):
            del at[step]
            return f"{steps} is gone"
        if chance_of(self._chance, 0.1) and isinstance(at, dict):
            at[f"{step}x"] = at.pop(step)
            return f"{steps} has another name"
        at[step] = value
        return f"{steps} = {value!r:.80}"

    def _written(self, how: str, name: str, fields: dict[str, Any]) -> Mutant:
        return self._made(how, name, json.dumps(fields).encode())

    def _made(self, how: str, name: str, content: bytes) -> Mutant:
        box = self._chance.choice(["bob", "bob", "dora", "bob@else"])
        folder = home(self._root, self._layout) / box / self._chance.choice(self._layout.places)
        stem = name.removeprefix(self._layout.beginning).removesuffix(self._layout.ending)
        unique = f"{self._layout.beginning}{stem}-{self._count}{self._layout.ending}"
        return Mutant(how, folder, unique.encode(), content)


def chance_of(chance: Random, share: float) -> bool:
    return chance.random() < share


def samples_of(root: Path, layout: Layout) -> list[tuple[str, dict[str, Any]]]:
    """Files by their names: of a stranger, and of letters of ours that say all that can be said."""
    with room(root, layout) as here:
        ann, bob = here.mailbox("ann"), here.mailbox("bob")
        first = ann.send("bob", "plain", subject="a subject")
        ann.send(
            ["bob", "dora"],
            [{"type": "text", "text": "rich"}, {"type": "data", "data": {"x": [1, 0.5, None]}}],
            subject="rich",
            bcc=["eve"],
            key="a key",
            priority="urgent",
            tags=["one", "two"],
            metadata={"a": {"b": 1}},
            thread_tag="tag",
            expires=86400,
        )
        ann.send("bob", "later", at=86400)
        ann.give_task("bob", "do it", deadline=3600)
        bob.reply(first.id, "an answer")
        dead = bob.claim()
        assert dead is not None
        dead.fail("no", retry=False)
        done = bob.claim()
        assert done is not None
        done.ack()
    drop(root, layout, 1)
    found = {path.rpartition("/")[2]: fields for path, fields in letters_in(root).items()}
    assert inbox(root, layout).is_dir()
    return sorted(found.items(), key=lambda each: _without_chance(json.dumps(each[1])))


def _without_chance(text: str) -> str:
    """Ids and times differ from run to run; the order of samples does not."""
    return re.sub(r"[0-9a-f]{8,}|[0-9]+", "", text)

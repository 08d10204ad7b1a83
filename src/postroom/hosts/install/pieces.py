"""What is ours in one file: a whole file, a few values in JSON, a table in TOML, a block of text.

All know the same: what takes ours out of a text, what puts it into one without, and whether it is there as wanted.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from . import blocks, json_edit, jsonc, toml_table
from .edits import Edit, apply
from .programs import calls_in, programs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .json_edit import IsOurs

    # What is wanted, where the rest of the file says this.
    Wanted = Callable[[Any], Mapping[str, Any]]


class Piece(Protocol):
    """What is ours in the file at `path`."""

    path: str
    whole: bool  # is all of the file ours?

    def take_out(self, text: str, *, for_good: bool) -> Sequence[Edit]:
        """What cuts out ours, also where somebody changed it. `for_good`: nothing will be put in again."""
        ...

    def put_in(self, text: str) -> Sequence[Edit]:
        """What adds ours to a text in which it is not. It only adds."""
        ...

    def is_in_place(self, text: str) -> bool:
        """Is ours there, whole and as wanted?"""
        ...

    def is_whole(self, text: str) -> bool:
        """Is every hook and server there that this version has, whatever they start and for whom?"""
        ...

    def programs(self, text: str) -> Iterator[str]:
        """The programs that a host would start because of what stands there of ours."""
        ...


class OwnFile:
    """A file that is ours from first to last."""

    whole = True

    def __init__(self, path: str, content: str) -> None:
        self.path = path
        self._content = content

    def take_out(self, text: str, *, for_good: bool) -> list[Edit]:  # noqa: ARG002 - all the same here
        return [Edit(0, len(text))] if text else []

    def put_in(self, text: str) -> list[Edit]:
        return [Edit(len(text), len(text), self._content)]

    def is_in_place(self, text: str) -> bool:
        return text == self._content

    def is_whole(self, text: str) -> bool:
        if not self.path.endswith(".json"):
            return True
        wanted, found = (jsonc.parse(one, comments=False).value for one in (self._content, text))
        return Counter(calls_in(wanted)) <= Counter(calls_in(found))

    def programs(self, text: str) -> Iterator[str]:
        if self.path.endswith(".json"):
            yield from programs_in(jsonc.parse(text, comments=False).value)


class JsonValues:
    """Members and elements of a JSON file. What is ours is known by what it says."""

    whole = False

    def __init__(self, path: str, wanted: Wanted, is_ours: IsOurs, *, comments: bool) -> None:
        self.path = path
        self._wanted = wanted
        self._is_ours = is_ours
        self._comments = comments

    def take_out(self, text: str, *, for_good: bool) -> list[Edit]:  # noqa: ARG002 - all the same here
        return json_edit.take_out(text, self._parsed(text), self._is_ours) if text.strip() else []

    def put_in(self, text: str) -> list[Edit]:
        if not text.strip():
            return [Edit(len(text), len(text), json.dumps(self._wanted({}), indent=2, ensure_ascii=False) + "\n")]
        node = self._parsed(text)
        return json_edit.put_in(text, node, self._wanted(node.value))

    def is_in_place(self, text: str) -> bool:
        if not text.strip():
            return False
        wanted = jsonc.parse(json.dumps(self._wanted_in(text)), comments=False)
        return self._ours(wanted) == self._ours(self._parsed(text))

    def is_whole(self, text: str) -> bool:
        ours = json_edit.ours_in(self._parsed(text), self._is_ours)
        found = Counter(call for path, value in ours for call in calls_in(value, path))
        return Counter(calls_in(self._wanted_in(text))) <= found

    def programs(self, text: str) -> Iterator[str]:
        for _, value in json_edit.ours_in(self._parsed(text), self._is_ours) if text.strip() else ():
            yield from programs_in(value)

    def _wanted_in(self, text: str) -> Mapping[str, Any]:
        return self._wanted(self._parsed(apply(text, self.take_out(text, for_good=True))).value)

    def _ours(self, node: jsonc.Node) -> list[tuple[Any, Any]]:
        return sorted(json_edit.ours_in(node, self._is_ours), key=repr)

    def _parsed(self, text: str) -> jsonc.Node:
        return jsonc.parse(text, comments=self._comments)


class TomlTable:
    """A table of a TOML file, under a comment of ours. One of the same name without it is somebody else's."""

    whole = False

    def __init__(self, path: str, mark: str, name: Sequence[str], wanted: Wanted) -> None:
        self.path = path
        self._mark = mark
        self._name = name
        self._wanted = wanted

    def take_out(self, text: str, *, for_good: bool) -> list[Edit]:
        return toml_table.take_out(text, self._mark, self._name, below=for_good)

    def put_in(self, text: str) -> list[Edit]:
        table = self._wanted(toml_table.parse(text))
        return toml_table.put_in(text, self._mark, self._name, table) if table else []

    def is_in_place(self, text: str) -> bool:
        cuts = self.take_out(text, for_good=False)
        wanted = self._wanted(toml_table.parse(apply(text, cuts)))
        found = json_edit.value_at(toml_table.parse(text), *self._name) if cuts else {}
        return bool(cuts) == bool(wanted) and wanted.items() <= found.items()

    def is_whole(self, text: str) -> bool:
        return bool(self.take_out(text, for_good=False))

    def programs(self, text: str) -> Iterator[str]:
        if self.take_out(text, for_good=False):
            yield from programs_in(json_edit.value_at(toml_table.parse(text), *self._name))


class TextBlock:
    """A block of a text for models."""

    whole = False

    def __init__(self, path: str, content: str, host: str) -> None:
        self.path = path
        self._content = content.rstrip("\n")
        self._marks = blocks.marks_of(host)

    def take_out(self, text: str, *, for_good: bool) -> list[Edit]:  # noqa: ARG002 - all the same here
        return blocks.take_out(text, self._content, self._marks)

    def put_in(self, text: str) -> list[Edit]:
        return blocks.put_in(text, self._content, self._marks)

    def is_in_place(self, text: str) -> bool:
        return blocks.block_in(text, self._marks) == self._content

    def is_whole(self, text: str) -> bool:
        return blocks.block_in(text, self._marks) is not None

    def programs(self, text: str) -> Iterator[str]:  # noqa: ARG002 - a text starts nothing
        yield from ()

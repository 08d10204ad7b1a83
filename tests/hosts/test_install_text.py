"""What is put into files of others, and taken out again: all the rest stays, to the byte, whatever the file."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import Invalid, Refused
from postroom.hosts.install.layouts import GEMINI_MARK, Order, _codex, _gemini
from postroom.hosts.install.pieces import Document, JsonValues, Piece, TextBlock, TomlTable
from postroom.hosts.install.plan import is_in_place

from .places import PROGRAM

SETTINGS: Piece
(SETTINGS,) = _gemini(Order("gemini", PROGRAM)).pieces
HOOKS, CONFIG = _codex(Order("codex", PROGRAM)).pieces
RULES = _codex(Order("codex", PROGRAM)).rules

# -- files as people and hosts write them

_PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_NAMES = st.sampled_from(["hooks", "mcpServers", "BeforeAgent", "a", "ü", "x.y"]) | st.text(max_size=3)
_VALUES = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=8
)
_HANDLERS = st.fixed_dictionaries(
    {"type": st.just("command"), "command": st.sampled_from(["lint", "postroom check"])}
)
_GROUPS = st.lists(st.fixed_dictionaries({"hooks": st.lists(_HANDLERS, max_size=2)}), max_size=2)
_FOREIGN_HOOKS = st.dictionaries(
    st.sampled_from(["BeforeAgent", "SessionStart", "Stop", "Other"]), _GROUPS, max_size=3
)
_SERVERS = st.dictionaries(st.sampled_from(["git", "postroom2"]), st.fixed_dictionaries({"command": st.just("x")}))
_SOME_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "ui": _VALUES,
        "hooks": _FOREIGN_HOOKS,
        "mcpServers": _SERVERS,
        "list": st.lists(_VALUES, max_size=2),
    },
)


@st.composite
def written(draw: st.DrawFn, *, comments: bool) -> str:
    """A settings file in some hand: indented or not, with comments where the host takes them."""
    value = draw(_SOME_SETTINGS)
    indent = draw(st.sampled_from([None, 0, 1, 2, 4, "\t"]))
    text = json.dumps(value, indent=indent, ensure_ascii=draw(st.booleans()))
    if comments:
        text = _with_comments(draw, text)
    text = draw(st.sampled_from(["", " ", "\n\n"])) + text + draw(st.sampled_from(["", "\n", "\n\n "]))
    if draw(st.booleans()):
        text = "\ufeff" + text
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def _with_comments(draw: st.DrawFn, text: str) -> str:
    """Behind brackets and commas that stand at the end of a line."""
    lines = text.split("\n")
    return "\n".join(
        line + draw(st.sampled_from(["", "", " // mine, {} [", ' /* " , } */'])) if line[-1:] in "{[," else line
        for line in lines
    )


def bare(text: str, *, comments: bool) -> Any:
    return Document(text, comments=comments).value


def has_empty(text: str, *, comments: bool) -> bool:
    """Whether there are empty objects or lists where ours go; nobody can tell them from those that we made."""
    value = bare(text, comments=comments)
    hooks = value.get("hooks")
    ours = [value, hooks, value.get("mcpServers"), *(hooks.values() if isinstance(hooks, dict) else ())]
    return any(one in ({}, []) for one in ours)


@pytest.mark.parametrize(("piece", "comments"), [(SETTINGS, True), (HOOKS, False)], ids=["gemini", "codex"])
@given(data=st.data())
def test_json_of_others_survives(piece: Piece, comments: bool, data: st.DataObject) -> None:
    text = data.draw(written(comments=comments))
    changed = piece.added(text)
    assert is_in_place(piece, changed) and not is_in_place(piece, text)
    taken = piece.without(changed)
    assert text == taken or has_empty(text, comments=comments)
    assert _without_empty(bare(text, comments=comments)) == _without_empty(bare(taken, comments=comments))


def _without_empty(value: Any) -> Any:
    """What became empty by what we took out goes; nobody can tell it from what was empty before."""
    if not isinstance(value, dict):
        return value
    hooks = value.get("hooks")
    kept = {event: groups for event, groups in hooks.items() if groups} if isinstance(hooks, dict) else hooks
    return {
        name: one for name, one in {**value, "hooks": kept}.items() if one or name not in {"hooks", "mcpServers"}
    }


@given(data=st.data())
def test_a_file_that_another_program_wrote_again_is_recognised(data: st.DataObject) -> None:
    """A host that saves its settings keeps what they say, not how they look."""
    value = data.draw(_SOME_SETTINGS)
    changed = SETTINGS.added(json.dumps(value, indent=2))
    saved = json.dumps(json.loads(changed), indent=data.draw(st.sampled_from([None, 4])))
    assert is_in_place(SETTINGS, saved)
    assert _without_empty(value) == _without_empty(json.loads(SETTINGS.without(saved)))


def test_what_is_put_in_looks_like_the_rest() -> None:
    text = '{\n    "ui": {"theme": "x"}, // mine\n    "hooks": {\n        "Other": []\n    }\n}\n'
    piece = JsonValues("", {"hooks": {"A": [1]}}, {"b": {"c": True}}, lambda *_: False, comments=True)
    assert piece.added(text) == (
        '{\n    "ui": {"theme": "x"}, // mine\n    "hooks": {\n        "Other": [],\n        "A": [\n'
        '            1\n        ]\n    },\n    "b": {\n        "c": true\n    }\n}\n'
    )


def test_a_comment_behind_the_last_value_stays_where_it_is() -> None:
    text = '{\n  "theme": "x" // mine\n  // more\n}\n'
    changed = SETTINGS.added(text)
    assert changed.startswith('{\n  "theme": "x", // mine\n  // more\n  "hooks": {') and text == SETTINGS.without(
        changed
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1,]",
        '{"a":1,}',
        '{"a" 1}',
        "{1:2}",
        "{}{}",
        "nul",
        "NaN",
        '"\n"',
        "[" * 9**6,
        "// x",
        '{"a": 1, "a": 2}',
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        Document(text, comments=False)


@given(value=_VALUES, indent=st.sampled_from([None, 1, "\t"]))
def test_json_is_read_as_everybody_reads_it(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    document = Document(text, comments=True)
    assert json.loads(text) == document.value and (0, len(text)) == (document.root.start, document.root.end)


@pytest.mark.parametrize("text", ['{"hooks": 7}', '{"hooks": {"Stop": {}}}', "[]", '"x"'])
def test_a_place_that_is_taken_by_something_else_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is needed"):
        HOOKS.added(text)


# -- TOML

_TOML = (
    'model = "x"\n', "# mine\n", "\n", "[a]\nb = 1\n", '[mcp_servers.git]\ncommand = "git"\nargs = [\n  "x",\n]\n',
    "[[many]]\nx = 1\n", 'text = """\n[not.a.table]\n# not a comment\n"""\n',
    '[hooks.state."/x:stop:0:0"]\nhash = "y"\n',
    "[mcp_servers.git.env]\nA = 'b'\n", "  [deep.er]\n  x = [[1], [2]]\n",
)  # fmt: skip


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(st.sampled_from(_TOML), unique=True, max_size=5))
    plain = sorted(pieces, key=lambda piece: "[" in piece.split("\n")[0])  # values of no table come first
    text = "".join(plain) if draw(st.booleans()) else "".join(plain).removesuffix("\n")
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a text without its last line
        text = "".join(plain)
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@given(
    text=toml_files(),
    more=st.sampled_from(["", '\n[hooks.state]\n[hooks.state."k"]\nx = 1\n', "\n# later\n[z]\n"]),
)
def test_toml_of_others_survives_also_what_came_later(text: str, more: str) -> None:
    changed = CONFIG.added(text)
    assert is_in_place(CONFIG, changed) and changed.startswith(text)
    assert text == CONFIG.without(changed)
    later = changed + more
    taken = CONFIG.without(later)
    assert tomllib.loads(text + more) == tomllib.loads(taken) and taken.count("# later") == more.count("# later")
    assert is_in_place(CONFIG, later)


def test_what_a_user_allowed_our_server_goes_with_it_and_not_before() -> None:
    older, newer = (_codex(Order("codex", (program,))).pieces[1] for program in ("/old/postroom", "/new/postroom"))
    changed = older.added("")
    allowed = changed + '\n[mcp_servers.postroom.tools.ack]\napproval = "always"\n\n# z\n[z]\nx = 1\n'
    again = newer.added(allowed)
    assert "/old/" not in again and "/new/" in again
    assert {"ack": {"approval": "always"}} == tomllib.loads(again)["mcp_servers"]["postroom"]["tools"]
    assert "\n# z\n[z]\nx = 1\n" == newer.without(again)


def test_a_table_that_was_changed_is_recognised() -> None:
    changed = CONFIG.added("a = 1\n")
    edited = changed.replace('args = ["mcp"]', 'args = [\n  "mcp",\n  # mine\n  "--as", "x",\n]\nenv = {A = "b"}')
    assert edited != changed and not is_in_place(CONFIG, edited)
    assert "a = 1\n" == CONFIG.without(edited)
    misleading = changed.replace('args = ["mcp"]', "args = [\n[1],\n]")
    assert "a = 1\n" == CONFIG.without(misleading)


def test_tables_that_cannot_be_added_are_refused() -> None:
    with pytest.raises(Invalid):
        CONFIG.added("mcp_servers = {}\n")
    with pytest.raises(Refused, match="is not ours"):
        CONFIG.added('[mcp_servers.postroom]\ncommand = "other"\n')
    with pytest.raises(Invalid):
        CONFIG.added("a = \n")


# -- a server that somebody put there by hand


@pytest.mark.parametrize(
    "words", [["postroom", "mcp"], ["/x/postroom", "mcp", "--as", "x"], ["py", "-m", "postroom", "mcp"]]
)
def test_our_server_in_anothers_hand_is_kept(words: list[str]) -> None:
    server = {"command": words[0], "args": words[1:]}
    changed = SETTINGS.added(json.dumps({"mcpServers": {"postroom": server}}))
    assert server == json.loads(changed)["mcpServers"]["postroom"] and is_in_place(SETTINGS, changed)
    assert GEMINI_MARK not in changed
    theirs = f'[mcp_servers.postroom]\ncommand = "{words[0]}"\nargs = {json.dumps(words[1:])}\n'
    assert theirs == CONFIG.added(theirs) == CONFIG.without(theirs) and is_in_place(CONFIG, theirs)


# -- a text for models

_PROSE = st.lists(st.sampled_from(["# Rules", "", "Be kind.", "  - a", "<!-- x -->", "\u2028"]), max_size=6)


@given(lines=_PROSE, ending=st.sampled_from(["", "\n", "\r\n"]), later=_PROSE)
def test_prose_of_others_survives_also_what_came_later(lines: list[str], ending: str, later: list[str]) -> None:
    text = (ending or "\n").join(lines) + ending
    changed = RULES.added(text)
    assert is_in_place(RULES, changed) and changed.startswith(text)
    assert text == RULES.without(changed)
    more = changed + "\n".join(later)
    assert is_in_place(RULES, more)
    taken = RULES.without(more)
    assert [line for line in (text + "\n" + "\n".join(later)).split() if line] == taken.split()


def test_half_a_block_is_recognised_and_takes_nothing_of_others_along() -> None:
    changed = RULES.added("# Mine\n")
    begin, end = (line for line in changed.splitlines() if line.startswith("<!-- postroom"))
    for half in (changed.replace(end, "My last word."), changed.replace(begin, "My first word.")):
        assert not is_in_place(RULES, half)
        taken = RULES.without(half)
        assert "# Mine\n" in taken and "word." in taken and "<!-- postroom" not in taken
    assert "# Mine\n# Mine\n" == RULES.without(changed + changed)


def test_an_edited_block_goes_as_a_whole() -> None:
    piece = TextBlock("", "one\ntwo", "codex")
    edited = piece.added("").replace("one", "another")
    assert not is_in_place(piece, edited)
    assert "" == piece.without(edited)
    assert isinstance(CONFIG, TomlTable)

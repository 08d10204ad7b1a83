"""From a keyboard's bytes to keys, and from keys to a line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroom.cli.inbox.screen import Key, Keyboard
from postroom.cli.inbox.state import Line, line_of, typed

TEXTS = st.text(alphabet=st.sampled_from("ab c\n\t日é́👍"), max_size=60)


# -- the keyboard


def keys(*pieces: bytes) -> list[Key]:
    keyboard = Keyboard()
    found = [key for piece in pieces for key in keyboard.feed(piece)]
    return [*found, *(keyboard.flush() if keyboard.waits else [])]


def test_letters_of_many_bytes_come_whole_however_they_are_cut() -> None:
    message = "é日👍".encode()
    assert [key.text for key in keys(*(message[n : n + 1] for n in range(len(message))))] == ["é", "日", "👍"]
    assert keys(b"\xff")[0].text == "�"


def test_keys_with_names_are_known_in_pieces_and_whole() -> None:
    message = b"\x1b[A\x1bOB\x1b[5~\x7f\x15\n"
    expected = ["up", "down", "pgup", "backspace", "ctrl-u", "enter"]
    assert [key.name for key in keys(message)] == expected
    assert [key.name for key in keys(*(message[n : n + 1] for n in range(len(message))))] == expected
    assert [key.name for key in keys(b"\x1b[27;5;13~", b"\x00", b"\x1b[200", b"~x\x1b[201~")] == [
        "unknown", "unknown", "paste",
    ]  # fmt: skip


def test_esc_alone_is_a_key_and_what_follows_it_another() -> None:
    assert [key.name for key in keys(b"\x1b")] == ["esc"]
    assert [key.name for key in keys(b"\x1bx")] == ["esc", "x"]
    assert [key.name for key in keys(b"\x1b[")] == ["esc", "["]


def test_what_is_pasted_is_one_text_and_its_line_ends_send_nothing() -> None:
    assert keys(b"\x1b[200~one\rtwo\r\nx\x1b[31m\x07\x1b[201~y") == [
        Key("paste", "one\ntwo\nx[31m"),
        Key("y", "y"),
    ]
    pieces = [bytes([byte]) for byte in b"\x1b[200~a\nb\x1b[201~"]
    assert keys(*pieces) == [Key("paste", "a\nb")]


def test_a_terminal_that_does_not_say_that_it_pastes_is_noticed() -> None:
    assert [key.name for key in keys(b"a\nb\n")] == ["a", "newline", "b", "enter"]
    assert [key.name for key in keys(b"a\n", b"b")] == ["a", "enter", "b"]


@given(st.binary(max_size=40), st.integers(1, 7))
def test_no_bytes_break_the_keyboard(message: bytes, size: int) -> None:
    for key in keys(*(message[n : n + size] for n in range(0, len(message), size))):
        assert key.text.isprintable() or key.name in {"paste", "newline"}


# -- a line that is written


def write(line: Line, *names: str) -> Line:
    for name in names:
        line = typed(line, Key(name, name if len(name) == 1 else ""))
    return line


def test_a_letter_goes_with_all_that_is_put_onto_it() -> None:
    assert write(line_of("cafe\u0301"), "backspace").text == "caf"
    assert write(line_of("ae\u0301b"), "left", "left", "delete") == Line("ab", 1)
    assert write(line_of("日本"), "left", "x") == Line("日x本", 2)


def test_words_and_all_of_it_are_wiped() -> None:
    assert write(line_of("one two  three "), "ctrl-w") == Line("one two  ", 9)
    assert write(line_of("one"), "ctrl-w", "ctrl-w", "backspace", "left") == Line()
    assert write(line_of("one two"), "home", "right", "ctrl-u") == Line("ne two", 0)
    assert write(line_of("one"), "home", "end", "unknown") == line_of("one")


@given(TEXTS, st.lists(st.sampled_from(["backspace", "delete", "left", "right", "ctrl-w", "ctrl-u", "home", "é"])))
def test_the_place_is_always_in_the_line(text: str, names: list[str]) -> None:
    line = write(line_of(text), *names)
    assert 0 <= line.at <= len(line.text)

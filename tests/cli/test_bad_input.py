"""Any bytes on any argument, standard input or file: a clear error with its field, the right code, no traceback,
and nothing is sent.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import postroom
from postroom.cli.command import EVERYWHERE, command_of
from postroom.cli.errors import MEANINGS
from postroom.cli.main import main
from tests.cli.shell import Done, Shell

CODES = {code for code, _ in MEANINGS}
HOSTILE = [
    b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x01\x1b[2J", "\u202egnp".encode(), b"", b" ",
    b"--", b"'", b"a" * 100_000,
    b"../../etc/passwd", b"{", b"[" * 5000, b"null", b"1e999", b"\n", b"*", b"$(id)", b"%s%n", "\uff43oder".encode(),
]  # fmt: skip


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """A command collects no garbage, as its process ends soon; here many of them share one process."""
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.collect()


def refused(done: Done, *codes: int) -> None:
    """It ended with one of these codes, and said in one JSON document what is wrong."""
    assert done.code in codes, done
    assert done.out == ""
    error = json.loads(done.err)["error"]
    assert (error["exit"], bool(error["message"])) == (done.code, True)
    assert error["field"], error


def letters(shell: Shell) -> int:
    with shell.room() as room:
        return sum(conversation.turns for conversation in room.conversations())


def test_hostile_names_are_refused_and_nothing_is_sent(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    for value in (b"\xff\xfe", b"", b"a b", b"../../etc/passwd", b"a" * 100_000, "\uff43oder".encode()):
        refused(shell.run(b"send", value, b"--as=ann", b"--body=x", b"--json"), 64, 65)
        refused(shell.run(b"send", b"bob", b"--as=" + value, b"--body=x", b"--json"), 64, 65)
    assert letters(shell) == 1


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: ascii(value[:12]))
def test_a_hostile_value_of_any_option_is_taken_as_it_is_or_refused(
    shell: Shell, value: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, because there are many: every option of a send gets the value in turn."""
    for name in [name for name in os.environ if name.startswith(("POSTROOM_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(shell.home))
    monkeypatch.chdir(shell.home)
    options = [option for option in command_of("send").options if not option.is_place and option.kind != "flag"]
    sent = 0
    for option in options:
        message = os.fsdecode(option.names[-1].encode() + b"=" + value)
        text = () if option.name in {"body", "drafts"} else ("--body=x",)
        to = () if option.name == "drafts" else ("bob",)
        code = main(["send", *to, "--as=ann", *text, message, "--room=x.db", "--json"])
        result = capsys.readouterr()
        done = Done(code=code, out=result.out, err=result.err)
        if code == 0:
            sent += not json.loads(done.out)["repeated"]  # --key after --letter-id, with the same value
            assert (
                option.kind == "json" or value.decode() in json.loads(done.out)["letter"].values() or option.many
            )
        else:
            refused(done, 64, 65, 66, 67, 77)
    with postroom.open("x.db") as room:
        assert sum(conversation.turns for conversation in room.conversations()) == sent


WITH_VALUE = [
    ("search", "{}"), ("tasks", "show", "{}"), ("tasks", "accept", "{}"), ("tasks", "give", "--body=x", "{}"),
    ("tasks", "give", "bob", "--body=x", "--deadline={}"), ("tasks", "give", "bob", "--body=x", "--session={}"),
    ("tasks", "--state={}"), ("tasks", "reject", "m-1", "--reason={}"), ("tasks", "admit", "m-1", "--judge={}"),
    ("escalate", "--reason={}", "--body=x"), ("escalate", "--reason=x", "--body=x", "--ladder={}"),
    ("resolve", "{}"), ("waiting", "--limit={}"), ("templates", "save", "--body=x", "{}"),
    ("templates", "save", "x", "--body={}"), ("templates", "show", "{}"), ("unsend", "{}"), ("block", "{}"),
    ("unblock", "{}"), ("send", "bob", "--template={}"),
    ("send", "bob", "--template=x", "--fill=place={}"),
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: ascii(value[:12]))
def test_a_hostile_value_anywhere_is_taken_or_refused(
    shell: Shell, value: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command about tasks, questions, templates and mail management gets it in turn."""
    for name in [name for name in os.environ if name.startswith(("POSTROOM_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(shell.home))
    monkeypatch.setenv("POSTROOM_STORE", str(shell.home / "room.db"))
    shell.post("ann", "bob", "x", id="m-1")
    for words in WITH_VALUE:
        message = [word.replace("{}", os.fsdecode(value)) for word in words]
        code = main(["--as=ann", "--json", *message])
        result = capsys.readouterr()
        if code != 0:
            refused(Done(code=code, out=result.out, err=result.err), 64, 65, 67, 69, 77)


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"\xff\xfe\x00", 65), (b"a\x00b", 65), (b"", 65), (b"x" * (1024 * 1024 + 1), 65), (b"\xed\xa0\x80", 65)],
    ids=["bytes", "nul", "empty", "huge", "surrogate"],
)
def test_a_bad_pipe_is_refused(shell: Shell, raw: bytes, code: int) -> None:
    refused(shell.run("send", "bob", "--as", "ann", "--json", stdin=raw), code)
    if raw:  # with other content, an empty text is fine
        refused(shell.run("send", "bob", "--as", "ann", "--body", "-", "--data", "1", "--json", stdin=raw), code)
    assert not shell.run("check", "--as", "bob", "--json").json["letters"]


def test_a_pipe_without_end_is_read_no_further_than_a_letter_may_be_long(shell: Shell) -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero here")
    for words in (("handoff", "bob", "--from-file", "/dev/zero"), ("send", "--drafts", "/dev/zero")):
        refused(shell.run(*words, "--as", "ann", "--json", "--set", "max_message_bytes=10000"), 65)


def test_bad_files_are_refused(shell: Shell) -> None:
    for name, raw in {"bytes": b"\xff", "not": b"{", "list": b"[]", "deep": b"[" * 99_999, "empty": b""}.items():
        (shell.home / name).write_bytes(raw)
        for words in (("handoff", "bob", "--from-file", name), ("send", "--drafts", name)):
            refused(shell.run(*words, "--as", "ann", "--json"), 65)
        refused(shell.run("import", name, "--room", "new.db", "--json"), 65)
    for name in ("missing", "."):
        refused(shell.run("handoff", "bob", "--from-file", name, "--as", "ann", "--json"), 66)
        refused(shell.run("import", name, "--room", "new.db", "--json"), 66)
        refused(shell.run("send", "bob", "--file", name, "--body", "x", "--as", "ann", "--json"), 66, 77)
    refused(shell.run("export", "no/such/folder/x", "--json"), 66)  # there is no room
    shell.room().close()
    refused(shell.run("export", "no/such/folder/x", "--json"), 73)
    refused(shell.run("send", "bob", "--as", "ann", "--body", "x", "--file", "/etc/passwd", "--json"), 77)
    refused(shell.run("handoff", "bob", "--as", "ann", "--from-file", "-", "--json", stdin='{"colour": 1}'), 65)
    refused(
        shell.run(
            "handoff", "b", "--as", "ann", "--from-file", "-", "--json", stdin='{"work_completed":"x","c":1}'
        ),
        65,
    )


def test_odd_environments_are_reported(shell: Shell) -> None:
    assert shell.run("check", POSTROOM_AGENT="no one").code == 65
    assert shell.run("check", "--as", "bob", POSTROOM_LEASE="soon").code == 78
    assert shell.run("check", "--as", "bob", POSTROOM_STORE="carrier:pigeon").code == 78
    config = shell.home / ".config" / "postroom" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("lease = ", encoding="utf-8")
    broken = shell.run("check", "--as", "bob", "--json")
    assert (broken.code, broken.error["field"]) == (78, str(config))


ANY = st.one_of(
    st.sampled_from(
        [b"send", b"check", b"--as", b"ann", b"--json", b"--body", b"bob", b"read", b"--", b"dead", b"wait"]
    ),
    st.binary(max_size=12).filter(lambda raw: b"\0" not in raw),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(ANY, max_size=6), stdin=st.binary(max_size=30))
def test_no_words_and_no_bytes_bring_it_out_of_its_shape(shell: Shell, words: list[bytes], stdin: bytes) -> None:
    done = shell.run(
        b"--set=durability=process", *words, b"--timeout=0" if b"wait" in words else b"--json", stdin=stdin
    )
    assert done.code in CODES
    assert "Traceback" not in done.err
    assert (done.code == 0) <= (done.err == "")
    if done.code not in {0, 1}:
        assert done.out == ""
        assert done.err


def complaint(shell: Shell, *words: str) -> list[str]:
    """What a person is told on standard error."""
    done = shell.run(*words)
    assert (done.out, done.code > 1) == ("", True), done
    return done.err.splitlines()


def test_errors_say_what_to_do(shell: Shell) -> None:
    shell.post("ann", "bob", "x", id="m-1")
    shell.json("claim", "--as", "bob", "--lease", "10m")
    advice = "  give the --token that claim showed, or wait until its lease ends"
    for command in (("ack", "m-1"), ("fail", "m-1", "--reason", "x"), ("release", "m-1")):
        assert complaint(shell, *command, "--as", "bob")[1] == advice
    assert complaint(shell, "templates", "nosuch")[0] == "postroom: command: there is no 'templates nosuch'"
    assert complaint(shell, "handoff", "bob", "--as", "ann")[0] == "postroom: --done: is missing"
    assert complaint(shell, "check", "--as", "bob", "--all", "--set", "leese=3")[1] == "  did you mean 'lease'?"
    kept = complaint(shell, "check", "--as", "bob", "--all", "--set", "outbox_persistence=memory")
    assert kept[1] == "  leave it out; a room at memory: forgets all of its mail alike"
    wrong = complaint(shell, "check", "--as", "bob", "--all", "--set", "lease=abc")
    assert wrong == ["postroom: lease: is not a number of seconds", "  digits without a unit, such as 90"]
    wrong = complaint(shell, "check", "--as", "bob", "--all", "--set", "lease=-1")
    assert wrong[1] == "  postroom rooms --settings shows all"
    assert complaint(shell, "claim", "--as", "bob", "--lease", "99999999d") == [
        "postroom: lease: is too long", "  up to 604800 seconds",
    ]  # fmt: skip
    shell.json("templates", "save", "rev", "--body", "{file} {line}")
    assert complaint(shell, "send", "bob", "--as", "ann", "--template", "rev", "--fill", "line=1") == [
        "postroom: values.file: is missing", "  name its text by --fill file=…; 'rev' needs file",
    ]  # fmt: skip
    wrong = complaint(shell, "check", "--as", "bob", "--all", "--set", "hops=abc")
    assert wrong[0] == "postroom: hops: is not a whole number"


def test_the_sender_of_a_letter_sees_where_to_follow_it(shell: Shell) -> None:
    shell.post("ann", "bob", "x", id="m-1")
    assert complaint(shell, "read", "m-1", "--as", "ann")[1:] == [
        "  you sent it: postroom thread m-1 --as ann, or postroom trace m-1 --as ann"
    ]
    assert complaint(shell, "read", "m-1", "--as", "carol")[1:] == ["  postroom check --all lists what is there"]


def test_the_doctor_of_a_room_that_is_not_there(shell: Shell) -> None:
    for command in (("doctor",), ("check", "--as", "ann")):
        done = shell.run(*command, "--room", "typo.db")
        assert (done.code, done.out) == (66, "")
        assert done.err.startswith("postroom: --room: there is no room at typo.db\n")


def test_a_room_in_memory_is_refused(shell: Shell) -> None:
    for words in (("send", "bob", "--as", "ann", "--body", "x"), ("check", "--as", "ann"), ("stats",)):
        refused = shell.run(*words, "--room", "memory:", "--json")
        assert (refused.code, refused.error["field"]) == (78, "store"), refused
        assert "gone when the command ends" in refused.error["message"]


def test_a_time_that_is_past_is_reported_unless_the_letter_may_have_been_sent_before(shell: Shell) -> None:
    words = ("send", "bob", "--as", "ann", "--body", "x", "--at", "2020-01-01T00:00:00Z")
    refused = shell.run(*words, "--json")
    assert (refused.code, refused.error["field"]) == (65, "--at")
    assert [shell.json(*words, "--key", "k")["repeated"] for _ in range(2)] == [False, True]


def test_too_long_a_text_is_not_sent_to_where_it_is_too_long_too(shell: Shell) -> None:
    refused = shell.run("send", "bob", "--as", "ann", "--json", stdin="x" * (1024 * 1024 + 2))
    assert (refused.code, refused.error["field"]) == (65, "body")
    assert "--reference" in refused.error["hint"]
    assert "--file" not in refused.error["hint"]


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--as", "ann", "--room", "LONG"],
        ["check", "--as", "ann", "--room", "LONG.db"],
        ["send", "bob", "--as", "ann", "--body", "x", "--room", "/LONG/LONG.db"],
        ["send", "bob", "--as", "ann", "--body", "x", "--file", "LONG"],
        ["send", "--drafts", "LONG", "--as", "ann"],
        ["handoff", "bob", "--as", "ann", "--from-file", "LONG"],
        ["import", "LONG"],
        ["restore", "LONG"],
        ["backup", "LONG"],
        ["export", "LONG"],
        ["check", "--as", "ann", "LONG"],
        ["check", "--as", "ann", "--LONG"],
        ["LONG"],
        ["tasks", "LONG"],
        ["init", "LONG"],
    ],
    ids=" ".join,
)
def test_a_huge_word_does_not_come_back_whole(shell: Shell, words: list[str]) -> None:
    shell.post("ann", "bob", "x")
    for long in ("a" * 60_000, "a b " * 15_000):
        for more in ([], ["--json"]):
            done = shell.run(*(word.replace("LONG", long) for word in words), *more)
            assert done.code in CODES - {0, 1}, done.code
            assert 0 < len(done.out + done.err) < 4000, len(done.err)


def test_a_file_that_cannot_be_enclosed_is_reported_by_its_option(shell: Shell) -> None:
    (shell.home / "real").write_text("x", encoding="ascii")
    (shell.home / "link").symlink_to("real")
    (shell.home / "large").write_bytes(b"x" * 5000)
    for path, code, message in (
        ("nope.txt", 66, "No such file"),
        ("link", 66, "links are not followed"),
        ("../outside", 77, "outside"),
        ("large", 65, "over 4000 bytes"),
    ):
        words = ("--as", "ann", "--body", "x", "--file", path, "--set", "max_message_bytes=4000", "--json")
        for command in (["send", "bob"], ["tasks", "give", "bob"], ["escalate", "--reason", "blocked"]):
            done = shell.run(*command, *words)
            assert (done.code, done.error["field"]) == (code, "--file"), done
            assert message in done.error["message"]
    shell.json("send", "bob", "--as", "ann", "--body", "x", "--file", "real", "--letter-id", "m-1")
    parts = shell.json("read", "m-1", "--as", "bob")["letter"]["parts"]
    assert (parts[1]["path"], parts[1]["bytes"], parts[1]["size"]) == ("real", "eA==", 1)


def test_a_name_that_is_no_text_is_refused_alike_wherever_it_is_passed(shell: Shell) -> None:
    name = os.fsdecode(b"a\xff")
    for words in (["check"], ["send", "bob", "--body", "x"], ["stats"], ["waiting"]):
        by_option = shell.run(*words, b"--as=a\xff", "--json")
        by_variable = shell.run(*words, "--json", POSTROOM_AGENT=name)
        assert (by_option.code, by_option.error["field"]) == (64, "--as")
        assert (by_variable.code, by_variable.error["field"]) == (64, "POSTROOM_AGENT"), by_variable


def test_a_room_is_any_path_that_is_seen_to_be_one(shell: Shell) -> None:
    shell.json("send", "bob", "--as", "ann", "--body", "x", "--room", "./mail")
    assert shell.json("counts", "--as", "bob", "--room", "sqlite:mail")["total"] == 1
    refused = shell.run("check", "--as", "bob", "--room", "mail", "--json")
    assert refused.code == 78
    room = next(option for option in EVERYWHERE if "--room" in option.names)
    words = "a path with a / or that ends in .db"
    assert words in refused.error["hint"] and words in room.help


def test_a_line_that_is_no_line_of_an_export_is_named(shell: Shell) -> None:
    shell.post("ann", "bob", "x")
    head, *_ = shell.run("export").out.splitlines()
    for line, what in (
        ('{"x": 1}', "is not a line of an export"),
        (
            '{"letter": {}, "deliveries": []}',
            "is not as an export writes it: Object missing required field `id` - at `$.letter`",
        ),
    ):
        done = shell.run("rooms", "import", "-", "--room", "new.db", stdin=f"{head}\n{line}\n")
        assert done.err.splitlines() == [
            f"postroom: line 2: {what}",
            "  a line holds a letter and its deliveries, a record, or a name",
        ]


def test_a_token_is_made_for_nobody_but_the_agent_that_is_named(shell: Shell) -> None:
    done = shell.run("tokens", "create", "--as", "web")
    assert (64, "") == (done.code, done.out)
    assert "--agent web makes a token for that agent" in done.err

"""Mail between us and other programs: bad files stop nobody, and good ones go both ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from postroom.nanobot import MailboxManager
from tests.nanobot import stranger

GOOD = {"id": "good", "from": "x", "type": "message", "content": {"parts": [{"type": "text", "text": "read me"}]}}
READ = {  # odd, but mail
    "content_text.msg.json": json.dumps(GOOD | {"id": "c", "content": "text"}).encode(),
    "callback_text.msg.json": json.dumps(GOOD | {"id": "d", "callback": "text"}).encode(),
    "1745659200_coder.msg.json": json.dumps(GOOD | {"id": "e"}).encode(),
}
BAD = {
    "broken.msg.json": b'{"from": "x"',
    "latin.msg.json": '{"from": "é"}'.encode("latin-1"),
    "list.msg.json": b"[1]",
    "no_from.msg.json": b'{"id": "y"}',
    "from_path.msg.json": b'{"from": "../x"}',
    "deep.msg.json": b"[" * 100_000,
    "huge.msg.json": b'"' + b"x" * (17 * 1024 * 1024) + b'"',
    "empty.msg.json": b"",
}


def test_a_reader_goes_on_while_strangers_drop_bad_files(manager: MailboxManager, root: Path) -> None:
    inbox = root / "coder" / "inbox"
    manager.register("coder", {})
    manager.poll("coder")  # who stays hears of each file; the rest of this test does
    for place, (name, content) in enumerate((BAD | READ).items()):
        path = inbox / name
        path.write_bytes(content)
        os.utime(path, (1, 1))  # nobody is still writing it
        manager.send("a", "coder", {"mark": place})
        assert any(mail.get("mark") == place for mail in manager.poll("coder"))
    (inbox / "link.msg.json").symlink_to("/etc/passwd")
    os.link(inbox / "content_text.msg.json", inbox / "second.msg.json")
    os.mkfifo(inbox / "pipe.msg.json")
    os.utime(inbox / "pipe.msg.json", (1, 1))
    (inbox / "folder.msg.json").mkdir()
    (inbox / "good.msg.json").write_text(json.dumps(GOOD), encoding="utf-8")

    polled = {mail["_filename"]: mail for mail in manager.poll("coder")}

    assert "read me" == polled["good.msg.json"]["content"]["parts"][0]["text"]
    assert {"callback_text.msg.json", "1745659200_coder.msg.json"} <= set(polled)
    assert not set(BAD) & set(polled)
    assert not {"link.msg.json", "pipe.msg.json", "folder.msg.json"} & set(polled)
    aside = {path.name.partition(".msg.json")[0] for path in (root / "coder" / ".quarantine").iterdir()}
    assert {name.partition(".")[0] for name in BAD} <= aside
    manager.mark_processed("coder", "good.msg.json")
    assert (root / "coder" / "processed" / "good.msg.json").exists()


def test_a_stranger_and_we_mail_both_ways_while_it_rewrites_the_registry(
    manager: MailboxManager, root: Path
) -> None:
    manager.register("coder", {"description": "ours"})
    command = [sys.executable, stranger.__file__, str(root), "alien", "coder", "12"]
    beating = threading.Event()

    def beat() -> None:
        while not beating.is_set():
            manager.heartbeat("coder")
            manager.update_status("coder", "busy", ["t"])

    with subprocess.Popen(command) as other:
        thread = threading.Thread(target=beat)
        thread.start()
        for place in range(12):
            manager.send("coder", "alien", {"content": {"parts": [{"type": "text", "text": str(place)}]}})
        answers: list[str] = []
        end = time.monotonic() + 60
        while len(answers) < 12 and time.monotonic() < end:
            for mail in manager.poll("coder"):
                answers.append(mail["content"]["parts"][0]["text"])
                manager.mark_processed("coder", mail["_filename"])
        beating.set()
        thread.join()
        other.wait(60)

    assert sorted(f"re: {place}" for place in range(12)) == sorted(answers)
    online = {agent["agent_id"]: agent for agent in manager.list_online_agents()}
    assert {"coder", "alien"} == set(online)
    assert ("ours", ["t"]) == (online["coder"]["description"], online["coder"]["current_tasks"])
    assert {"coder", "alien"} == set(stranger.Stranger(root, "x").registry())

"""Programs written for the design run unchanged, as processes of their own, at once, from any folder of theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.cli.main import main
from postroom.swarm import MailboxManager, MessagePriority, MessageStatus
from postroom.swarm.install import CONTENT, export
from tests.swarm.project import Project, output_of, told_by

# The four programs of the design's examples, with the same imports and calls, in our words.
ARCHITECT = """
from shared.agent_mailbox import send_handoff, MessagePriority

send_handoff(
    from_agent="swarm_dev/architect",
    to_agent="swarm_dev/implementer",
    subject="Build the parser",
    work_completed="The grammar is written down",
    current_state="Agreed, nothing built",
    next_steps=["write it", "test it"],
    files_modified=["docs/GRAMMAR.md"],
    blockers=[],
    swarm_name="swarm_dev",
    priority=MessagePriority.HIGH,
)
"""
COO = """
from shared.agent_mailbox import broadcast_to_swarm, MessagePriority

broadcast_to_swarm(
    from_agent="coo",
    swarm_name="swarm_dev",
    subject="The parser comes first",
    body="Leave the rest for tomorrow.",
    priority=MessagePriority.URGENT,
)
"""
IMPLEMENTER = """
from shared.agent_mailbox import check_my_mailbox, get_mailbox_manager

messages = check_my_mailbox("swarm_dev/implementer")
print(len(messages))
for msg in messages:
    print(msg.to_markdown())
    manager = get_mailbox_manager()
    manager.read_message(msg.id)
    if msg.type.value == "handoff":
        manager.mark_processing(msg.id)
        manager.mark_completed(msg.id, archive=True)
"""
CRITIC = """
from shared.agent_mailbox import get_mailbox_manager, MessagePriority

manager = get_mailbox_manager()
sent = manager.reply(
    original_message_id={id!r},
    from_agent="swarm_dev/critic",
    body="Line 145 leaks.",
    payload={{"verdict": "NEEDS_CHANGES", "issue_count": 1}},
)
print(sent.id if sent else None)
"""


def install(capsys: pytest.CaptureFixture[str]) -> str:
    """`postroom swarm install`, and what it did to the module."""
    assert 0 == main(["swarm", "install", "--json"])
    return str(json.loads(capsys.readouterr().out)["outcome"])


@pytest.fixture
def installed(project: Project, capsys: pytest.CaptureFixture[str]) -> Project:
    install(capsys)
    return project


def test_the_examples_of_the_design_run_side_by_side(installed: Project, manager: MailboxManager) -> None:
    told_by([installed.python(code) for code in (ARCHITECT, COO, ARCHITECT, COO)])
    waiting = manager.check_mailbox("swarm_dev/implementer")
    assert [4, 4, 3, 3] == [each.priority.value for each in waiting]
    message = output_of(installed.python(IMPLEMENTER))
    assert (
        message.startswith("4\n## [URGENT] The parser comes first\n") and "## [HIGH] Build the parser\n" in message
    )
    assert [] == manager.check_mailbox("swarm_dev/implementer")
    states = [each.status for each in map(manager.read_message, (each.id for each in waiting)) if each]
    assert [MessageStatus.READ] * 2 + [MessageStatus.ARCHIVED] * 2 == states
    id = output_of(installed.python(CRITIC.format(id=waiting[2].id))).strip()
    (answer,) = manager.check_mailbox("swarm_dev/architect", min_priority=MessagePriority.HIGH)[2:]
    assert (answer.id, answer.reply_to, answer.payload["issue_count"]) == (id, waiting[2].id, 1)
    assert "None" == output_of(installed.python(CRITIC.format(id="MSG-abc123def456"))).strip()


def test_every_letter_of_many_processes_arrives_once(installed: Project, manager: MailboxManager) -> None:
    code = """
from shared.agent_mailbox import send_message
for number in range(10):
    send_message("{name}", "swarm_dev/critic", f"{name} {{number}}", "x")
"""
    told_by([installed.python(code.format(name=f"w{number}")) for number in range(4)])
    subjects = sorted(each.subject for each in manager.check_mailbox("swarm_dev/critic"))
    assert sorted(f"w{worker} {number}" for worker in range(4) for number in range(10)) == subjects


def test_workers_in_several_processes_share_the_work(installed: Project, manager: MailboxManager) -> None:
    sent = {manager.send("a", "b", str(number), "x").id for number in range(12)}
    code = """
import json
from shared.agent_mailbox import check_my_mailbox, get_mailbox_manager
manager, done = get_mailbox_manager(), []
for message in check_my_mailbox("b"):
    if manager.mark_processing(message.id):
        done.append(message.id)
        manager.mark_completed(message.id)
print(json.dumps(done))
"""
    done = [id for out in told_by([installed.python(code) for _ in range(3)]) for id in json.loads(out)]
    assert sorted(sent) == sorted(done)


def test_another_process_sees_a_letter_at_once(installed: Project, manager: MailboxManager) -> None:
    code = """
import sys
from shared.agent_mailbox import get_mailbox_manager
manager = get_mailbox_manager()
print("ready", flush=True)
for line in sys.stdin:
    print(manager.get_pending_count("b")["total"], flush=True)
"""
    with installed.talking(code) as reader:  # the others may come and go; this one stays
        assert reader.stdin is not None is not reader.stdout and "ready\n" == reader.stdout.readline()
        for number in range(1, 4):
            manager.send("a", "b", "s", "x")
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert f"{number}\n" == reader.stdout.readline()
        reader.stdin.close()


def test_the_program_has_one_manager(installed: Project) -> None:
    code = """
from threading import Thread
from shared.agent_mailbox import get_mailbox_manager
found = []
threads = [Thread(target=lambda: found.append(get_mailbox_manager("elsewhere"))) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(set(map(id, found))), get_mailbox_manager("ignored").mailboxes_dir)
"""
    assert "1 elsewhere\n" == output_of(installed.python(code))


def test_the_package_itself_exports_the_names_and_keeps_what_a_project_wrote(installed: Project) -> None:
    project = installed
    code = "from shared import {}; print(send_message('a', 'b', 's', 'x').to_agent)"
    assert (Path("shared/__init__.py"), "unchanged") == export(Path("shared"))
    assert "b\n" == output_of(project.python(code.format("send_message")))
    Path("shared/__init__.py").write_text("RETRIES = 3", encoding="utf-8")
    assert ["extended", "unchanged"] == [export(Path("shared"))[1] for _ in range(2)]
    assert "b\n" == output_of(project.python(code.format("RETRIES, send_message")))
    assert "skipped" == export(Path())[1] and not Path("__init__.py").exists()


@pytest.mark.usefixtures("project")
def test_the_file_is_written_once_and_only_ours_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "written" == install(capsys)
    path = tmp_path / "shared" / "agent_mailbox.py"
    assert CONTENT == path.read_text(encoding="utf-8") and "unchanged" == install(capsys)
    path.write_text(CONTENT + "# of an older version\n", encoding="utf-8")
    assert "replaced" == install(capsys) and CONTENT == path.read_text(encoding="utf-8")
    assert ["__init__.py", "agent_mailbox.py"] == sorted(each.name for each in path.parent.iterdir())

"""The tools, asked by real clients in both revisions."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import jsonschema
import pytest

from postroom.core.presentation import TAKEN_BACK_NOTICE, USERS_NOTICE
from postroom.mcp.tools import LONGEST_WAIT, TOOLS, arguments
from tests.mcp.harness import MODES, Harness, ask, played, refused
from tests.people import person

CHARACTERS_PER_TOKEN = 3.2  # of compact JSON; tokenizers in use take 3.5 to 4.5, so this counts too many
MOST_TOKENS = 3000
# What a call of a tool cannot do without.
NEEDED: dict[str, dict[str, Any]] = {
    "wait_for_mail": {"timeout": 0},
    "search_mail": {"query": "private"},
    "read_thread": {"threadTag": "m-1"},
    "ack": {"messageIds": "m-1"},
    "task": {"action": "list"},
}


@pytest.mark.parametrize("mode", MODES)
def test_mail_goes_from_one_to_the_other(mode: str) -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann", mode=mode) as ann, harness.client("bob", mode=mode) as bob:
            sent = await ask(ann, "send_message", to="bob", body="Which sort is stable?", subject="Sorting")
            assert sent["ok"] and ["bob"] == sent["unknown"]
            found = await ask(bob, "check_inbox")
            assert 1 == found["count"]
            letter = found["messages"][0]
            result = {"id": sent["messageId"], "from": "ann", "subject": "Sorting", "importance": "normal"}
            assert result.items() <= letter.items()
            assert {"type": "text", "text": "Which sort is stable?"} == letter["content"]
            assert 0 == (await ask(bob, "check_inbox"))["count"]
            assert 1 == (await ask(bob, "check_inbox", unreadOnly=False))["count"]

    played(story)


def test_all_schemas_together_stay_below_3000_tokens() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann:
            listed = await ann.list_tools()
            plain = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
            written = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
            assert len(plain) == 10
            assert len(written) / CHARACTERS_PER_TOKEN < MOST_TOKENS

    played(story)


def test_every_tool_says_what_it_takes_what_it_gives_and_what_it_does() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann:
            tools = {tool.name: tool for tool in (await ann.list_tools()).tools}
            assert [*TOOLS] == list(tools)
            for tool in tools.values():
                jsonschema.Draft202012Validator.check_schema(tool.input_schema)
                jsonschema.Draft202012Validator.check_schema(tool.output_schema or {})
                assert tool.description and tool.title and tool.annotations
            looking = {
                name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint
            }
            assert {"read_thread", "list_agents", "search_mail"} == looking

    played(story)


def test_a_limit_marks_exactly_what_is_returned_and_acknowledges_nothing() -> None:
    async def story(harness: Harness) -> None:
        box = harness.room.mailbox("ann")
        for place in range(5):
            box.send("bob", f"letter {place}")
        async with harness.client("bob") as bob:
            first = await ask(bob, "check_inbox", agentId="bob", limit=2)
            assert 2 == first["count"]
            assert 3 == harness.room.mailbox("bob").counts()["total"]
            rest = await ask(bob, "check_inbox", limit=10)
            assert 3 == rest["count"]
            assert not {m["id"] for m in first["messages"]} & {m["id"] for m in rest["messages"]}
            claimed = await ask(bob, "claim", count=5)
            assert 5 == claimed["count"]

    played(story)


def test_an_agent_that_checks_its_inbox_is_registered() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client(scope="sorting") as anyone:
            await ask(anyone, "check_inbox", agentId="newcomer")
            await ask(anyone, "check_inbox", agentId="newcomer")
            (row,) = (await ask(anyone, "list_agents"))["agents"]
            assert {
                "agentId": "newcomer",
                "scope": "sorting",
                "status": "active",
                "location": "local",
            }.items() <= row.items()
            assert 0 == (await ask(anyone, "list_agents", scope="other"))["count"]
            await ask(anyone, "send_message", to="newcomer", body="x", **{"from": "newcomer"})
            (letter,) = (await ask(anyone, "check_inbox", agentId="newcomer"))["messages"]
            for time in (row["lastActive"], letter["createdAt"]):  # as on the socket
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)

    played(story)


def test_the_sender_is_the_tokens_agent_else_from_else_the_servers_default() -> None:
    async def story(harness: Harness) -> None:
        async with (
            harness.client("told") as result,
            harness.client() as nobody,
            harness.client(token="holder") as holder,  # noqa: S106 - a name
        ):
            await ask(result, "send_message", to="bob", body="1")
            await ask(result, "send_message", to="bob", body="2", **{"from": "said"})
            await ask(holder, "send_message", to="bob", body="3", **{"from": "forged"})
            who = await refused(nobody, "send_message", to="bob", body="4")
            assert "from" == who["field"] and "INBOX_AGENT_ID" in who["hint"]
            senders = [letter.message.sender for letter in harness.room.mailbox("bob").check()]
            assert ["told", "said", "holder"] == senders

    played(story)


def test_with_a_token_no_other_inbox_can_be_reached() -> None:
    async def story(harness: Harness) -> None:
        harness.room.mailbox("ann").send("bob", "private", id="m-1")
        async with harness.client(token="eve") as eve:  # noqa: S106 - a name
            for name, tool in TOOLS.items():
                if any(arg.name == "agentId" for arg in arguments(tool)):
                    error = await refused(eve, name, agentId="bob", **NEEDED.get(name, {}))
                    assert "NotAllowed" == error["name"], name
            assert 0 == (await ask(eve, "search_mail", query="private"))["count"]
            assert 0 == (await ask(eve, "read_thread", threadTag="m-1"))["count"]
            assert "UnknownMessage" == (await refused(eve, "ack", messageIds="m-1"))["name"]

    played(story)


@pytest.mark.parametrize(
    ("tool", "params", "field"),
    [
        ("send_message", {"to": "bob", "nonsense": 1}, "nonsense"),
        ("send_message", {"to": "bob", "scope": "swarm:team"}, "scope"),
        ("send_message", {"body": "x"}, "to"),
        ("send_message", {"to": 5}, "to"),
        ("send_message", {"to": "../bob"}, "to"),
        ("send_message", {"to": "bob", "importance": "extreme"}, "importance"),
        ("send_message", {"to": "bob", "content": {"text": "no type"}}, "content"),
        ("check_inbox", {"limit": "many"}, "limit"),
        ("read_thread", {}, "threadTag"),
        ("ack", {"messageIds": "m-1", "outcome": "eaten"}, "outcome"),
        ("ack", {"messageIds": "m-1", "outcome": "released", "reply": "x"}, "reply"),
        ("task", {"action": "give"}, "to"),
        ("task", {"action": "status"}, "messageId"),
        ("task", {"action": "dance", "messageId": "m-1"}, "action"),
        ("handoff", {"to": "bob"}, "workCompleted"),
        ("wait_for_mail", {"since": "never"}, "since"),
        ("ack", {"messageIds": "m-1"}, "messageIds"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_a_tool_error_that_names_it(tool: str, params: dict[str, object], field: str) -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann", mode="legacy") as ann:
            error = await refused(ann, tool, **params)
            assert field == error["field"], error
            assert error["error"] and not error["retryable"]

    played(story)


def test_waiting_is_bounded_and_misses_nothing() -> None:
    async def story(harness: Harness) -> None:
        ann = harness.room.mailbox("ann")
        async with harness.client("bob") as bob:
            empty = await ask(bob, "wait_for_mail", timeout=0)
            assert empty["message"] is None
            ann.send("bob", "1")
            ann.send("bob", "2")
            first = await ask(bob, "wait_for_mail", timeout=5, since=empty["cursor"])
            second = await ask(bob, "wait_for_mail", timeout=5, since=first["cursor"])
            assert ["1", "2"] == [one["message"]["content"]["text"] for one in (first, second)]
            waiting = asyncio.create_task(ask(bob, "wait_for_mail", timeout=1e9, since=second["cursor"]))
            await asyncio.sleep(0.05)
            ann.send("bob", "3")
            assert "3" == (await waiting)["message"]["content"]["text"]
        assert LONGEST_WAIT < 60

    played(story)


def test_the_answer_to_a_letter_is_waited_for_by_its_thread() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann, harness.client("bob") as bob:
            sent = await ask(ann, "send_message", to="bob", body="?")
            await ask(bob, "send_message", to="ann", body="beside")
            (request,) = (await ask(bob, "check_inbox"))["messages"]
            await ask(bob, "send_message", to="ann", body="!", inReplyTo=request["id"])
            answer = await ask(ann, "wait_for_mail", thread=sent["thread"], timeout=5)
            assert "!" == answer["message"]["content"]["text"]
            thread = await ask(ann, "read_thread", threadTag=sent["thread"])
            assert ["?", "!"] == [m["content"]["text"] for m in thread["messages"]]

    played(story)


def test_a_letter_that_was_taken_back_says_so_in_its_thread() -> None:
    async def story(harness: Harness) -> None:
        human = person(harness.room)
        sent = human.send("ann", "approved")
        async with harness.client("ann") as ann:
            await ask(ann, "check_inbox")
            notices = []
            for is_taken_back in (False, True):
                if is_taken_back:
                    human.unsend(sent.id)
                (letter,) = (await ask(ann, "read_thread", threadTag=sent.thread))["messages"]
                notices.append(letter["notice"])
            assert notices == [USERS_NOTICE, TAKEN_BACK_NOTICE]

    played(story)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("asked", ["bob", "human"])
def test_one_call_asks_an_agent_or_the_person_and_returns_the_answer(mode: str, asked: str) -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann", mode=mode) as ann:
            asking = asyncio.create_task(ask(ann, "send_message", to=asked, body="Shall I?", timeout=20))
            box = person(harness.room) if asked == "human" else harness.room.mailbox(asked)
            (request,) = await asyncio.to_thread(lambda: [box.wait(timeout=20)])
            assert request is not None and ("request", "Shall I?") == (request.kind, request.text)
            request.reply("Yes.")
            told = await asking
            assert request.id == told["messageId"]
            assert (asked, "Yes.") == (told["answer"]["from"], told["answer"]["content"]["text"])
            assert (asked == "human") == ("is your user's own word" in told["answer"].get("notice", ""))
            assert 0 == (await ask(ann, "check_inbox"))["count"]  # the answer is settled

    played(story)


def test_an_answer_that_comes_late_is_waited_for_by_its_thread() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann:
            params = {"to": "human", "body": "Shall I?", "key": "k-1"}
            told = await ask(ann, "send_message", timeout=0.05, **params)
            assert told["answer"] is None
            again = await ask(ann, "send_message", timeout=0.05, **params)  # it waits on, and asks nothing anew
            assert (told["messageId"], None) == (again["messageId"], again["answer"])
            (request,) = person(harness.room).check()
            request.reply("Yes.")
            late = await ask(ann, "wait_for_mail", thread=told["thread"], timeout=5)
            assert "Yes." == late["message"]["content"]["text"]

    played(story)


def test_a_question_that_nobody_takes_is_an_error() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann, harness.client("bob") as bob:
            asking = asyncio.create_task(refused(ann, "send_message", to="bob", body="Shall I?", timeout=20))
            (request,) = (await ask(bob, "claim", timeout=20))["messages"]
            how = {"outcome": "rejected", "reason": "not mine", "token": request["token"]}
            await ask(bob, "ack", messageIds=request["id"], **how)
            error = await asking
            assert "Undeliverable" == error["name"] and "not mine" in error["error"]

    played(story)


def test_threads_are_read_by_their_tag() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann:
            await ask(ann, "send_message", to="bob", body="1", threadTag="release")
            await ask(ann, "send_message", to="bob", body="2", threadTag="release", to_scope="sorting")
            found = await ask(ann, "read_thread", threadTag="release")
            assert ("release", 2) == (found["threadTag"], found["count"])
            assert 1 == (await ask(ann, "read_thread", threadTag="release", scope="sorting"))["count"]
        async with harness.client() as operator, harness.client(token="eve") as eve:  # noqa: S106 - a name
            (letter,) = (await ask(operator, "read_thread", threadTag="release"))["messages"]
            assert ("ann", {"type": "text", "text": "1"}) == (letter["from"], letter["content"])
            assert 0 == (await ask(eve, "read_thread", threadTag="release"))["count"]

    played(story)


def test_who_is_in_a_thread_reads_all_of_it() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann, harness.client("bob") as bob, harness.client("eve") as eve:
            first = await ask(ann, "send_message", to="bob", body="1", threadTag="release")
            await ask(bob, "send_message", to="carol", body="2", threadTag="release")
            await ask(bob, "send_message", to="carol", body="3", threadTag="release", to_scope="elsewhere")
            await ask(bob, "send_message", to="dan", body="4", inReplyTo=first["messageId"], threadTag="aside")
            found = await ask(ann, "read_thread", threadTag="release")
            assert ["1", "2"] == [one["content"]["text"] for one in found["messages"]]
            found = await ask(ann, "read_thread", threadTag=first["thread"])
            assert ["1", "4"] == [one["content"]["text"] for one in found["messages"]]
            assert 0 == (await ask(eve, "read_thread", threadTag="release"))["count"]
        async with harness.client(token="ann") as ann:  # noqa: S106 - a name
            assert 1 == (await ask(ann, "read_thread", threadTag="release"))["count"]

    played(story)


def test_a_message_that_answers_another_is_a_reply() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann, harness.client("bob", scope="own-team") as bob:
            params = {"subject": "S", "importance": "urgent", "to_scope": "swarm:team"}
            first = await ask(ann, "send_message", to="bob", body="?", **params)
            await ask(bob, "send_message", to="ann", body="!", inReplyTo=first["messageId"])
            await ask(bob, "send_message", body="!!", inReplyTo=first["messageId"])
            answers = harness.room.mailbox("ann").check()
            assert [("Re: S", "URGENT", "swarm:team", "ann")] * 2 == [
                (one.subject, one.priority.name, one.message.scope, one.message.recipients[0].address)
                for one in answers
            ]
            assert "to" == (await refused(bob, "send_message", body="to nobody"))["field"]

    played(story)


def test_presence_is_reported_in_the_same_words_as_on_the_socket() -> None:
    async def story(harness: Harness) -> None:
        harness.room.mailbox("ann").register()
        harness.room.mailbox("bob").register()
        harness.room.mailbox("bob").leave()
        async with harness.client("ann") as ann:
            rows = (await ask(ann, "list_agents"))["agents"]
            result = {row["agentId"]: row["status"] for row in rows}
            assert {"ann": "active", "bob": "offline"} == result
            call, operator = harness.executor.call, harness.room.principal
            on_socket = (await call(operator, "list_agents", {}))["agents"]
            assert result == {row["agentId"]: row["status"] for row in on_socket}
            talk = {"initialParticipants": [{"id": "ann"}, {"id": "bob"}]}
            id = (await call(operator, "mail/create", talk))["id"]
            there = (await call(operator, "mail/presence", {"id": id}))["participants"]
            assert result == {one["agent_id"]: one["presence"] for one in there}

    played(story)


def test_to_scope_without_to_reaches_the_team() -> None:
    async def story(harness: Harness) -> None:
        for name in ("ann", "bob", "eve"):
            harness.room.mailbox(name).register(scopes=["sorting"])
        async with harness.client("ann") as ann:
            await ask(ann, "send_message", to_scope="sorting", body="all")
        assert [0, 1, 1] == [harness.room.mailbox(name).counts()["total"] for name in ("ann", "bob", "eve")]

    played(story)


def test_an_address_may_be_named_by_its_pieces() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann, harness.client("bob") as bob:
            pieces = {"agent": "bob"}
            for to in (pieces, [pieces, "carl"]):
                await ask(ann, "send_message", to=to, body="in pieces")
            await ask(ann, "task", action="give", to=pieces, body="Sort it.")
            await ask(ann, "handoff", to=pieces, workCompleted="All.")
            assert 4 == (await ask(bob, "check_inbox"))["count"]
            wrong = await refused(ann, "send_message", to={"agent": "bob", "system": "mars"}, body="x")
            assert "to" == wrong["field"]

    played(story)


def test_content_of_any_type_comes_back_as_it_was() -> None:
    async def story(harness: Harness) -> None:
        content = {"type": "task_update", "state": "working", "nested": {"n": [1, None]}}
        async with harness.client("ann") as ann, harness.client("bob") as bob:
            await ask(ann, "send_message", to=["bob"], content=content, importance="urgent", key="k-1")
            await ask(ann, "send_message", to=["bob"], content=content, importance="urgent", key="k-1")
            (letter,) = (await ask(bob, "check_inbox"))["messages"]
            assert (content, "urgent") == (letter["content"], letter["importance"])

    played(story)


def test_work_is_claimed_and_settled_in_each_way() -> None:
    async def story(harness: Harness) -> None:
        ann = harness.room.mailbox("ann")
        for name in ("done", "failed", "rejected", "released"):
            ann.send("bob", name, id=f"m-{name}")
        async with harness.client("bob") as bob:
            claimed = (await ask(bob, "claim", count=4, lease=60))["messages"]
            token = {letter["id"]: letter["token"] for letter in claimed}
            states = {}
            for outcome, more in (
                ("done", {"reply": "it is done"}),
                ("failed", {"reason": "no network"}),
                ("rejected", {"reason": "not mine"}),
                ("released", {}),
            ):
                id = f"m-{outcome}"
                settled = await ask(bob, "ack", messageIds=[id], outcome=outcome, token=token[id], **more)
                states[outcome] = settled["messages"][0]["state"]
                assert ("replyId" in settled) == (outcome == "done")
            assert {"done": "done", "failed": "unread", "rejected": "dead", "released": "unread"} == states
            assert "LeaseLost" == (await refused(bob, "ack", messageIds="m-released", token="t"))["name"]  # noqa: S106
        assert "it is done" in [letter.text for letter in ann.check()]

    played(story)


def test_a_task_is_given_moved_and_looked_at() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann, harness.client("bob") as bob:
            give = {"action": "give", "to": "bob", "body": "Sort it."}
            await ask(ann, "task", deadline=3600, **give)
            id = (await ask(ann, "task", deadline="2100-01-31T12:00:00Z", **give))["messageId"]
            for step, state in (("accept", "accepted"), ("start", "working"), ("complete", "completed")):
                moved = await ask(bob, "task", action=step, messageId=id)
                assert state == moved["task"]["state"]
            assert "completed" == (await ask(ann, "task", action="status", messageId=id))["task"]["state"]
            assert 2 == len((await ask(ann, "task", action="list"))["tasks"])
            assert "IllegalMove" == (await refused(bob, "task", action="accept", messageId=id))["name"]

    played(story)


def test_work_is_handed_over_and_found_again() -> None:
    async def story(harness: Harness) -> None:
        async with harness.client("ann") as ann, harness.client("bob") as bob:
            await ask(
                ann, "handoff", to="bob", workCompleted="the parser", nextSteps=["the printer"], subject="Parser"
            )
            (letter,) = (await ask(bob, "check_inbox"))["messages"]
            assert "handoff" == letter["kind"]
            found = await ask(bob, "search_mail", query="printer", limit=5)
            assert [letter["id"]] == [one["id"] for one in found["messages"]]

    played(story)


def test_there_is_no_other_tool() -> None:
    async def story(harness: Harness) -> None:
        from mcp import MCPError

        async with harness.client("ann") as ann:
            with pytest.raises(MCPError, match="there is no tool"):
                await ann.call_tool("rm", {})

    played(story)

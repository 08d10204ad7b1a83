"""Plain calls: `POST /v1/VERB` and the documents that describe the verbs, made from the same declarations."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import postroom
from postroom.formats.plain import FORMS
from postroom.server.protocol import wire_verbs
from tests.docs.pages import HOME, section
from tests.server.http.running import PATIENCE, Client, Daemon
from tests.server.test_who_may import Filled

Agent = Callable[..., Client]
REFUSED = {404, 409, 422}  # of a verb that comes too late, since another one has settled the letter


def test_a_letter_goes_from_one_agent_to_the_other(agent: Agent) -> None:
    ann, bob = agent("ann"), agent("bob")
    sent = ann.post({"to": "bob", "body": "hello"}, "/v1/send")
    assert (200, "application/json") == (sent.status, sent.headers["content-type"])
    (letter,) = bob.post({}, "/v1/check").json["letters"]
    assert (sent.json["id"], "ann") == (letter["id"], letter["sender"])
    for name in ("id", "message_id", "messageId"):  # older names are accepted
        assert letter["id"] == bob.post({name: letter["id"]}, "/v1/read").json["letter"]["id"]
    assert 200 == bob.post(b"", "/v1/counts").status  # no parameters, no body


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/v1/nonsense", {}, 404, "NoSuchMethod"),
        ("/v1/", {}, 404, "NoSuchMethod"),
        ("/v1/check_inbox", {}, 404, "NoSuchMethod"),  # agent-inbox's own actions belong to its socket
        ("/v1/check", [], 400, "Invalid"),
        ("/v1/check", b"{", 400, "Invalid"),
        ("/v1/check", {"limit": "x"}, 400, "Invalid"),
        ("/v1/check", {"nonsense": 1}, 400, "Invalid"),
        ("/v1/check", {"agent_id": "bob"}, 403, "NotAllowed"),
        ("/v1/read", {"id": "m-none"}, 404, "UnknownMessage"),
        ("/v1/send", {"to": "bob", "body": "y", "letter_id": "m-taken"}, 409, "IdTaken"),
    ],
)
def test_a_refusal_has_an_honest_status_and_says_why(
    agent: Agent, path: str, body: Any, status: int, error: str
) -> None:
    ann = agent("ann")
    ann.post({"to": "bob", "body": "x", "letter_id": "m-taken"}, "/v1/send")
    refused = ann.post(body, path)
    assert (status, error) == (refused.status, refused.json["name"])
    assert {"error", "name", "code", "retryable"} <= refused.json.keys()


def test_it_is_guarded_like_json_rpc_and_says_so_in_its_own_form(agent: Agent, anonymous: Client) -> None:
    ann = agent("ann")
    for refused, status, error in (
        (anonymous.post({}, "/v1/check"), 401, "NotAllowed"),
        (ann.post({}, "/v1/check", content_type="text/plain"), 415, "Invalid"),
        (ann.post({}, "/v1/check", origin="http://elsewhere.example"), 403, "NotAllowed"),
        (ann.ask("GET", "/v1/check"), 405, "Invalid"),
    ):
        assert (status, error) == (refused.status, refused.json["name"])
        assert {"error", "name", "code", "retryable"} == refused.json.keys()
    elsewhere = anonymous.ask("GET", "/openapi.json")
    assert 401 == elsewhere.status
    assert {"jsonrpc", "id", "error"} == elsewhere.json.keys()


def test_a_misspelt_verb_is_answered_with_the_right_one(agent: Agent) -> None:
    ann = agent("ann")
    assert "did you mean check?" == ann.post({}, "/v1/chek").json["hint"]
    assert "GET /openapi.json lists them" == ann.post({}, "/v1/qqqq").json["hint"]


def test_plain_parameters_at_another_path_are_answered_with_the_right_one(agent: Agent) -> None:
    assert "POST /v1/VERB" in agent("ann").post({"to": "bob", "body": "x"}, "/send").json["error"]["message"]


def test_an_agent_waits_for_mail(agent: Agent, running: Daemon) -> None:
    nobody = agent("eve").post({"timeout": 0.1}, "/v1/wait")
    assert (200, None) == (nobody.status, nobody.json["letter"])
    with postroom.open(running.room) as room:
        room.mailbox("ann").send("eve", "x")
    assert "ann" == agent("eve").post({"timeout": 5}, "/v1/wait").json["letter"]["sender"]


def test_every_verb_is_described_and_answers_as_its_description_says(operator: Client, running: Daemon) -> None:
    described = operator.ask("GET", "/openapi.json").json
    schemas = {"components": described["components"]}
    assert {f"/v1/{name}" for name in wire_verbs()} == described["paths"].keys()
    with postroom.open(running.room) as room:
        filled = Filled(room)
    refused = []
    for path, methods in sorted(described["paths"].items(), key=lambda one: is_writing(one[0])):
        name, call = path.removeprefix("/v1/"), methods["post"]
        wanted = call["requestBody"]["content"]["application/json"]["schema"]
        params = filled.params_of(f"mail/{name}", wire_verbs()[name])
        Draft202012Validator(wanted | schemas).validate(params)
        assert call["summary"] and all(one["description"] for one in wanted["properties"].values()), name
        answer = operator.post(params, path)
        refused += [name] if answer.status in REFUSED else []
        assert answer.status in {200, *REFUSED}, (name, answer.body)
        kind = "200" if answer.status == 200 else "default"
        result = call["responses"][kind]["content"]["application/json"]["schema"]
        Draft202012Validator(closed(result | schemas)).validate(answer.json)
    assert len(refused) <= 10, refused


def test_every_result_has_a_shape(operator: Client) -> None:
    described = operator.ask("GET", "/openapi.json").json
    shapes = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        result = methods["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        shape = shapes[result["$ref"].rpartition("/")[2]] if "$ref" in result else result
        assert shape.get("properties"), path


def is_writing(path: str) -> bool:
    return wire_verbs()[path.removeprefix("/v1/")].declaration().writes


def closed(schema: Any) -> Any:
    """The schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(one) for name, one in schema.items()}
    return {"additionalProperties": False} | found if "properties" in found else found


def test_every_form_is_of_a_type_there_is() -> None:
    for place in FORMS:
        module, _, name = place.partition(".")
        found = [f"postroom.{room}.{module}" for room in ("core", "formats", "model")]
        assert any(hasattr(import_module(one), name) for one in found if find_spec(one)), place


def test_a_field_that_no_schema_names_is_found(operator: Client) -> None:
    described = operator.ask("GET", "/openapi.json").json
    counted = operator.post({"agent_id": "bob"}, "/v1/counts").json
    schema = closed({"$ref": "#/components/schemas/Counted", "components": described["components"]})
    assert Draft202012Validator(schema).is_valid(counted)
    assert not Draft202012Validator(schema).is_valid(counted | {"more": 1})


def test_older_names_are_marked_as_deprecated(operator: Client) -> None:
    paths = operator.ask("GET", "/openapi.json").json["paths"]
    params = paths["/v1/read"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert (None, True) == (params["id"].get("deprecated"), params["message_id"]["deprecated"])


def test_json_rpc_describes_itself(operator: Client) -> None:
    found = operator.call("rpc.discover")
    methods = {one["name"]: one for one in found["methods"]}
    assert {f"mail/{name}" for name in wire_verbs()} | {"mail/turn", "map/subscribe"} <= methods.keys()
    (limit,) = [one for one in methods["mail/check"]["params"] if one["name"] == "limit"]
    assert (False, 20) == (limit["required"], limit["schema"]["default"])


def test_the_example_of_the_page_runs_as_it_stands(running: Daemon) -> None:
    page = (HOME / "docs" / "http.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"```sh\n(.*?)```", section(page, "Plain calls"), re.DOTALL))
    code = code.replace("127.0.0.1:4650", f"127.0.0.1:{running.port}")
    environment = {"TOKEN": running.token("web"), "PATH": os.environ["PATH"]}
    run = subprocess.run(
        ["sh", "-ec", code], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (0, True) == (run.returncode, '"Hello, me","thread"' in run.stdout), run.stdout + run.stderr
    assert '"UnknownMessage"' in run.stdout  # the id in the last call stands for one

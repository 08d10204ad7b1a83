"""Letters that Hypothesis draws for the tests of the codecs, and one that has every field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from postroom.model.message import CARRIED, FEDERATION_NOTE, Message, Part, Priority, Proof, Recipient, TaskNote

NOW = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
names = st.sampled_from(["ann", "bob", "swarm/carl", "d-4"])
labels = st.text(alphabet="abcd e.-", min_size=1, max_size=12).map(str.strip).filter(bool)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=8).filter(lambda name: name != FEDERATION_NOTE), values, max_size=3)
parts = st.one_of(
    st.text(max_size=20).map(lambda text: Part("text", text=text)),
    values.map(lambda data: Part("data", data=data)),
    values.map(lambda data: Part("x-own", note=data)),
    objects.map(lambda content: Part(CARRIED, content={"type": "theirs", **content})),
    st.just(Part("event", event="done", data=None)),
    st.just(Part("file", path="a.txt", bytes="aGk=")),
)
times = st.integers(0, 10**9).map(lambda seconds: NOW + timedelta(seconds=seconds))
letters = st.builds(
    Message,
    id=st.from_regex(r"[A-Za-z0-9._:-]{1,30}", fullmatch=True),
    sender=names,
    recipients=st.lists(
        st.builds(Recipient, st.sampled_from(["bob@far", "ann", "eve@else", "broadcast:team"]), st.just("to")),
        max_size=3,
    ).map(tuple),
    created_at=times,
    kind=st.sampled_from(["message", "task", "handoff"]),
    subject=st.text(max_size=9),
    parts=st.lists(parts, max_size=3).map(tuple),
    priority=st.sampled_from(Priority),
    scope=st.sampled_from(["default", "team"]),
    expires_at=st.none() | times,
    thread_tag=st.none() | labels,
    thread_id=st.none() | names.map(lambda name: name.replace("/", ".")),
    conversation_id=st.none() | st.sampled_from(["conv-1", "general:team"]),
    in_reply_to=st.none() | st.just("01ABC"),
    hops=st.integers(0, 5),
    trace=st.lists(names, min_size=1, max_size=3).map(tuple),
    task=st.none() | st.builds(TaskNote, id=st.just("t1"), deadline=st.none() | times),
    callback=st.none() | objects,
    context=st.none() | objects,
    attachments=st.lists(labels, max_size=2).map(tuple),
    tags=st.lists(labels, max_size=2).map(tuple),
    metadata=objects,
    key=st.none() | st.just("key-1"),
    extra=objects,
)
FULL = Message(
    id="full-1",
    sender="ann",
    recipients=(Recipient("bob", "to"),),
    created_at=NOW,
    kind="handoff",
    subject="all of it",
    parts=(Part("text", text="words"), Part("data", data={"n": 1})),
    priority=Priority.HIGH,
    scope="team",
    expires_at=NOW + timedelta(hours=1),
    thread_tag="tag",
    thread_id="thread-1",
    conversation_id="conv-1",
    in_reply_to="full-0",
    hops=2,
    trace=("dora", "ann"),
    task=TaskNote(id="t1", deadline=NOW + timedelta(hours=2)),
    callback={"url": "x"},
    context={"why": "so"},
    attachments=("a.txt",),
    tags=("red",),
    metadata={"theirs": [1]},
    key="key-1",
    extra={"more": {"deep": True}},
    proof=Proof(key="k-1", signature="s", room="a-room", recipients=(Recipient("bob"),)),
)

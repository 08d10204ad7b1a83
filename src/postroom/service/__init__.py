"""The use cases: the only room where policy meets store, and where every caller is asked who they are.

Each verb takes the office (store, rules, clock, ids) and the caller, asks `authorize`, then policy, then commits.
Nothing here knows sockets, files, terminals or frameworks; what lies above (the Python API, the command
line, later the wire) only parses, calls and prints. A file is loaded when it is first needed: a send needs few.

    office     what every verb needs
    authorize  who may do what: the table
    given      numbers and lists as callers say them
    records    find a small record, write it as it was found
    naming     what somebody is called now and was called before
    renaming   another name for an agent: all that is kept by name follows

    compose    from what a caller says to a checked letter
    files      files enclosed in letters
    templates  letters written beforehand, with places for values
    addressing who gets a letter: whoever can do it, and the guards at the doors
    sending    send, reply, forward, broadcast, handoff
    unsending  taking a letter back before somebody works on it

    reading    check, read, counts, wait
    waiting    look, sleep until a bell rings, look again
    threads    threads, conversations, turns
    talks      conversations as a caller may see them, with what letters do not tell
    conversing open, join, leave, invite, close, reopen; threads that are opened
    turning    a turn: a letter to everybody else in a conversation
    retelling  which turns, in numbers, and who is there
    search     letters by what they say, what was sent, ids by how they begin
    present    letters as text for prompts
    ringing    telling somebody of mail; lost_rings: when that failed; ringbook: what ringers remember
    auditing   who was told of a letter, and where it was shown; rates: whether it helps

    moving     find, step, commit; what time did to deliveries
    holding    claim, renew, ack, fail, release
    holders    whether whoever holds a claim is still there
    dead       dead letters
    notices    letters of the postmaster about another letter
    bouncing   notices to the sender of a letter that died

    identity   what the room is called among others
    elsewhere  which names are at other systems, and whether a letter may go there
    outbox     mail that waits for other systems, and what became of it
    arriving   mail that comes from other systems; admitting: whether it is taken
    pulse      does a running room still take what is written?
    tokens     proof of who is calling, over a wire
    peers      other systems: the allow-list, and proof of who they are; peer_rules: what may be said of one
    mounting   foreign mail folders among them
    webhooks   whom to call when mail waits; calling: which calls are to be made, and what became of them
    directory  cards, heartbeats, presence
    scopes     teams that agents are in
    guarding   allow lists, and names whose mail is refused
    tasks      give a task, find it again, list them
    task_moves take a task on, finish it, cancel it; admission
    taskbook   where each task stands, kept in the commit of its letters
    overdue    notices to the giver of a task that is not over at its deadline
    escalating escalate, escalations, resolve
    climbing   what becomes of escalations that nobody answers
    standing_down  word to those above that one is over

    janitor    what time does when nobody looks: leases, expiry, archive, retention
    portable   a whole room as JSON lines; portable_records: its records
    copying    backups
    transfer   from one room into another, again and again; transfer_records: its records;
               transfer_fence: no worker takes what is being moved
    counting   a room in numbers, and how its mail flows
    tracing    the life of one letter
    doctor     the health of a room, and repairs that are safe
"""

from __future__ import annotations

from ..loading import on_demand

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from . import (
        addressing,
        admitting,
        arriving,
        auditing,
        authorize,
        bouncing,
        calling,
        climbing,
        compose,
        conversing,
        copying,
        counting,
        dead,
        directory,
        doctor,
        elsewhere,
        escalating,
        files,
        given,
        guarding,
        holders,
        holding,
        identity,
        janitor,
        lost_rings,
        mounting,
        moving,
        naming,
        notices,
        office,
        outbox,
        overdue,
        peer_rules,
        peers,
        portable,
        portable_records,
        present,
        pulse,
        rates,
        reading,
        records,
        renaming,
        retelling,
        ringbook,
        ringing,
        scopes,
        search,
        sending,
        standing_down,
        talks,
        task_moves,
        taskbook,
        tasks,
        templates,
        threads,
        tokens,
        tracing,
        transfer,
        transfer_fence,
        transfer_records,
        turning,
        unsending,
        waiting,
        webhooks,
    )

__all__ = [
    "addressing",
    "admitting",
    "arriving",
    "auditing",
    "authorize",
    "bouncing",
    "calling",
    "climbing",
    "compose",
    "conversing",
    "copying",
    "counting",
    "dead",
    "directory",
    "doctor",
    "elsewhere",
    "escalating",
    "files",
    "given",
    "guarding",
    "holders",
    "holding",
    "identity",
    "janitor",
    "lost_rings",
    "mounting",
    "moving",
    "naming",
    "notices",
    "office",
    "outbox",
    "overdue",
    "peer_rules",
    "peers",
    "portable",
    "portable_records",
    "present",
    "pulse",
    "rates",
    "reading",
    "records",
    "renaming",
    "retelling",
    "ringbook",
    "ringing",
    "scopes",
    "search",
    "sending",
    "standing_down",
    "talks",
    "task_moves",
    "taskbook",
    "tasks",
    "templates",
    "threads",
    "tokens",
    "tracing",
    "transfer",
    "transfer_fence",
    "transfer_records",
    "turning",
    "unsending",
    "waiting",
    "webhooks",
]

__getattr__ = on_demand(__name__, __all__)

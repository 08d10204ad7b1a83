"""A host of agents, without a model: a process that calls hooks when it is told to, as its children, and starts
waiters that it does not wait for. Lines of JSON in, lines of JSON out.

    {"hook": [...], "stdin": "..."}                  run it to its end: {"code", "out", "err"}
    {"hook": [...], "stdin": "...", "beside": true}  start it beside: {"pid"}
    {"run": [...]}                                   any other program, to its end: {"code", "out", "err"}
    {"beside": true}                                 {"live": [pids], "ended": [{"pid", "code", "out", "err"}]}

Postroom is loaded once, and every hook is a fork of this process: starting Python takes longer than most of them.
What is to go wrong is planted first, by some Python in the words of the command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple


class Child(NamedTuple):
    pid: int
    out: int
    err: int


def main() -> None:
    load()
    exec(sys.argv[1], {})  # noqa: S102 - the bug of a test
    beside: list[Child] = []
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), beside)), flush=True)
    for child in beside:
        os.kill(child.pid, 9)
        os.waitpid(child.pid, 0)


def load() -> None:
    pass


def answer(params: dict[str, Any], beside: list[Child]) -> dict[str, Any]:
    if "run" in params:
        done = subprocess.run(params["run"], capture_output=True, text=True, check=False)
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr}
    if "hook" not in params:
        ended = [result for child in list(beside) if (result := end_of(child, beside))]
        return {"live": [child.pid for child in beside], "ended": ended}
    child = start(params["hook"], params["stdin"].encode())
    if "beside" in params:
        beside.append(child)
        return {"pid": child.pid}
    out, err = read(child.out), read(child.err)
    return {"code": os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]), "out": out, "err": err}


def end_of(child: Child, beside: list[Child]) -> dict[str, Any] | None:
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if not pid:
        return None
    beside.remove(child)
    code = os.waitstatus_to_exitcode(status)
    return {"pid": pid, "code": code, "out": read(child.out), "err": read(child.err)}


def start(words: list[str], stdin: bytes) -> Child:
    (their_in, our_in), (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        for place, number in enumerate((their_in, their_out, their_err)):
            os.dup2(number, place)
        os.closerange(3, 256)
        sys.argv[:] = ["postroom", *words]
        from postroom.cli.main import entry

        entry()
    for number in (their_in, their_out, their_err):
        os.close(number)
    os.write(our_in, stdin)
    os.close(our_in)
    return Child(pid, our_out, our_err)


def read(number: int) -> str:
    with open(number, encoding="utf-8") as pipe:
        return pipe.read()


if __name__ == "__main__":
    main()

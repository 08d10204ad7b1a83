"""A pool of workers: three processes share one inbox, and each job is done by exactly one of them.

`serve` claims a letter under a lease, calls the handler, and acknowledges the letter when the handler returns. If
a worker dies in the middle, its lease runs out and another worker gets the job.

    python examples/worker_pool.py
"""

import multiprocessing
import os
import sys
import tempfile
import time

import postroom
from postroom import Work

JOBS = 12
WORKERS = 3


def word_count(job: Work) -> dict[str, int]:
    """Do one job; what the handler returns is sent to the job's sender as the answer."""
    time.sleep(0.2)  # stands for real work
    return {"words": len(job.text.split()), "worker": os.getpid()}


def worker(address: str) -> None:
    with postroom.open(address) as room:
        # Without a timeout, it serves until it is stopped.
        room.mailbox("pool").serve(word_count, concurrency=2, timeout=2)


def main(address: str) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=worker, args=(address,)) for _ in range(WORKERS)]
    for process in workers:
        process.start()

    with postroom.open(address) as room:
        boss = room.mailbox("boss")
        for number in range(JOBS):
            # With a key, a job that is sent twice arrives once.
            boss.send("pool", "word " * number, kind="request", key=f"job-{number}")
        done = 0
        while done < JOBS:
            answer = boss.claim(timeout=30)
            if answer is None:
                sys.exit("no answer came within 30 seconds")
            with answer:  # acknowledged at the end of the block
                done += 1
                print(f"{done:2} of {JOBS}: {answer.data}")

    for process in workers:
        process.join()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:{folder}/room.db")

"""Ask and answer: one agent asks another and waits for its answer, with asyncio and without.

`ask` sends a request, waits for the answer in its thread, and acknowledges it. It raises `Undeliverable` if the
request is refused for good, and `NoAnswer` if no answer comes in time.

    python examples/ask_answer.py
"""

import asyncio
import tempfile
import threading

import postroom
from postroom import Work

FACTS = {"Which sort is stable?": "Merge sort is stable."}


def answer(question: Work) -> str | None:
    """Answer a question. An exception would be a failed try, and the question would come again later."""
    if question.text not in FACTS:
        question.reject("I do not know that.")
    return FACTS.get(question.text)


async def ask_two(address: str) -> None:
    """Ask twice at once: a wait holds no thread."""
    async with postroom.aio.open(address) as room:
        coder, planner = room.mailbox("coder"), room.mailbox("planner")
        answers = await asyncio.gather(
            coder.ask("researcher", "Which sort is stable?", timeout=30),
            planner.ask("researcher", "Which sort is stable?", timeout=30),
        )
        print("awaited:", *(letter.text for letter in answers))


def main(address: str) -> None:
    with postroom.open(address) as room:
        researcher, coder = room.mailbox("researcher"), room.mailbox("coder")
        serving = threading.Thread(target=researcher.serve, args=(answer,))  # usually a process of its own
        serving.start()
        try:
            print("asked:", coder.ask("researcher", "Which sort is stable?", timeout=30).text)
            asyncio.run(ask_two(address))
            try:
                coder.ask("researcher", "What time is it?", timeout=30)
            except postroom.Undeliverable as error:
                print("refused:", error)
            try:
                coder.ask("nobody", "Is anybody there?", timeout=0.5)
            except postroom.NoAnswer as error:
                print("no answer:", error)
        finally:
            researcher.stop()
            serving.join()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:{folder}/room.db")

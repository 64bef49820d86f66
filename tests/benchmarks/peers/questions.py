"""How a peer's script hears its questions and answers them; it has nothing but the standard library.

A question is {"prompts": [[id, ...], ...], "output": tokens of each reply}; the answer has the seconds and the seconds
of CPU that it took, and the ids that came.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Generate = Callable[[list[list[int]], int], list[list[int]]]


def settings() -> Any:
    """As peers/__main__.py gives them."""
    return json.loads(sys.argv[1])


def own_output() -> Any:
    """The pipe to whoever asks; what libraries print goes to the log from now on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def answer_all(name: str, generate: Generate, answers: Any, cpu_s: Callable[[], float] = time.process_time) -> None:
    """Until the input ends. `cpu_s` tells what the peer has taken so far."""
    print(json.dumps({"name": name}), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        began, cpu = time.perf_counter(), cpu_s()
        replies = generate(question["prompts"], question["output"])
        taken = {"seconds": time.perf_counter() - began, "cpu_s": cpu_s() - cpu}
        print(json.dumps({**taken, "replies": replies}), file=answers, flush=True)

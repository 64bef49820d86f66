"""Engines in turn: who runs when, what the medians are of, and how a peer's process answers or says why it ended."""

import sys
from pathlib import Path

import pytest

from infra.bench_engine import Workload
from tests.benchmarks.peers.compare import Run, Side, alternated, markdown
from tests.benchmarks.peers.environment import HERE, PeerFailed, Process

ECHO = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from questions import answer_all, own_output
answers = own_output()
print("a library's words")
answer_all("echo", lambda prompts, output: [ids[:output] for ids in prompts], answers)
"""


def process(script: str, folder: Path) -> Process:
    return Process([sys.executable, "-c", script], folder / "log", {})


def test_sides_take_turns_at_being_first_and_get_the_same_prompts() -> None:
    heard: list[tuple[str, int]] = []

    def side(name: str, *seconds: float) -> Side:
        taken = iter(seconds)

        def once(workload: Workload) -> Run:
            heard.append((name, workload.prompt))
            return Run(next(taken), 1.0, [[1, 2, 3]])

        return once

    row = alternated((side("ours", 1, 2, 4), side("theirs", 3, 12, 2)), Workload(1, 320), rounds=3)
    assert heard[:4] == [("ours", 320), ("theirs", 320), ("theirs", 321), ("ours", 321)]
    assert heard[4:] == [("ours", 322), ("theirs", 322)]
    assert (row.ours, row.theirs, row.ratio, row.cpu_ratio, row.alike) == (1.5, 1.0, 3.0, 1.0, 1.0)


def test_the_table_says_how_many_replies_are_the_same() -> None:
    runs = iter([Run(1.0, 1.0, [[1], [2]]), Run(2.0, 1.0, [[1], [3]])])
    row = alternated((lambda _: next(runs), lambda _: next(runs)), Workload(2), rounds=1)
    assert markdown([row], "other").splitlines()[-1] == "| 2 | 2.0 tok/s | 1.0 tok/s | 2.00 | 1.00 | 50% |"


def test_a_peer_answers_whatever_its_libraries_print(tmp_path: Path) -> None:
    with process(ECHO, tmp_path) as echo:
        answer = echo.ask(prompts=[[4, 5, 6]], output=2)
    assert (echo.name, answer["replies"]) == ("echo", [[4, 5]])
    assert "a library's words" in (tmp_path / "log").read_text()


def test_a_peer_that_ends_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="no such wheel"):
        process("raise SystemExit('no such wheel')", tmp_path)

"""A runner without a model: replies follow a script.

In: sequences, as the model runner takes them. Out: the next id of each one's script, then an end of sequence. The same
prompt gives the same reply, continued or not, so everything around a model can be tested in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.sequence import Sequence
from schemas.tokenizer import ChatTokenizer

Script = Callable[[tuple[int, ...]], tuple[int, ...]]


def echo(tokenizer: ChatTokenizer) -> Script:
    """The script that says the last user message again, id by id; nothing where there is none."""
    header = tokenizer.header("user")

    def script(prompt: tuple[int, ...]) -> tuple[int, ...]:
        for start in range(len(prompt) - len(header), -1, -1):
            if prompt[start : start + len(header)] == header:
                content = prompt[start + len(header) :]
                return content[: content.index(tokenizer.turn_end)] if tokenizer.turn_end in content else content
        return ()

    return script


class ScriptedRunner:
    """`before_step` is called first in each step: a test slows, freezes or breaks the replica there."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        script: Script | None = None,
        before_step: Callable[[list[Sequence]], None] | None = None,
    ) -> None:
        self._script = script or echo(tokenizer)
        self._before_step = before_step
        self._end = min(tokenizer.eos_ids)
        self._replies: dict[Sequence, tuple[int, ...]] = {}
        self._fingerprint = f"scripted/{tokenizer.fingerprint}"

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def step(self, sequences: list[Sequence]) -> list[int]:
        if self._before_step is not None:
            self._before_step(sequences)
        return [self._next(sequence) for sequence in sequences]

    def release(self, sequence: Sequence) -> None:
        self._replies.pop(sequence, None)
        sequence.num_computed_tokens = 0

    def _next(self, sequence: Sequence) -> int:
        if sequence not in self._replies:
            self._replies[sequence] = self._script(sequence.prompt)
        reply = self._replies[sequence]
        sequence.num_computed_tokens = sequence.num_tokens
        return reply[sequence.position] if sequence.position < len(reply) else self._end

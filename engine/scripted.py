"""A runner without a model: replies follow a script.

In: chunks, as the model runner takes them. Out: the next id of each one's script, then an end of sequence. The same
prompt gives the same reply, continued or not, so everything around a model can be tested in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from engine.runner import Logprobs, Sampled
from engine.sequence import Chunk, Sequence
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
    """Has as many blocks as it is told; `before_step` is called first in each step, with the sequences that it computes
    tokens of: a test slows, freezes or breaks the replica there."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        script: Script | None = None,
        before_step: Callable[[list[Sequence]], None] | None = None,
        num_blocks: int = 4096,
    ) -> None:
        self.num_blocks = num_blocks
        self.fingerprint = f"scripted/{tokenizer.fingerprint}"
        self._script = script or echo(tokenizer)
        self._before_step = before_step
        self._end = min(tokenizer.eos_ids)
        self._replies: WeakKeyDictionary[Sequence, tuple[int, ...]] = WeakKeyDictionary()

    def compute(self, chunks: list[Chunk]) -> list[Sampled]:
        if self._before_step is not None:
            self._before_step([chunk.sequence for chunk in chunks])
        return [_certain(chunk.sequence, self._next(chunk.sequence)) for chunk in chunks if chunk.samples]

    def _next(self, sequence: Sequence) -> int:
        if sequence not in self._replies:
            self._replies[sequence] = self._script(sequence.prompt)
        reply = self._replies[sequence]
        return reply[sequence.position] if sequence.position < len(reply) else self._end


def _certain(sequence: Sequence, token_id: int) -> Sampled:
    """The script says it with probability 1; where more of the likeliest are asked for, there are no others."""
    wanted = sequence.sampling.top_logprobs
    return Sampled(token_id, None if wanted is None else Logprobs(0.0, ((token_id, 0.0),) if wanted else ()))

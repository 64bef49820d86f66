"""How the tokens of a reply are to be drawn: the fields that every way to ask for one has in common.

Names and ranges are OpenAI's, and vLLM's where OpenAI has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from edge.config import Defaults
from edge.fields import bad, boolean, integer, number, positive
from schemas.events import Sampling

FIELDS = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "logprobs",
    "top_logprobs",
)
MOST_TOKENS = 1_000_000
MOST_SEED = 2**63 - 1
MOST_TOP_K = 1_000_000
MOST_STOPS = 4
MOST_STOP_CHARACTERS = 256
MOST_PENALTY = 2
MOST_TOP_LOGPROBS = 20

FIRST_FIELDS = frozenset(("max_tokens", "temperature", "top_p", "top_k", "seed", "stop"))
_UNASKED = Sampling(max_tokens=0)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for. `seed` None: the edge draws one; `max_tokens` 0: not asked."""

    sampling: Sampling
    seed: int | None

    def drawn(self, seed: int) -> Sampling:
        """With the seed that was asked for, else with `seed`."""
        return replace(self.sampling, seed=seed if self.seed is None else self.seed)

    def hashed(self) -> dict[str, Any]:
        """What a body's hash is made of: a field that a later version added counts only where it asks for something."""
        values = {**asdict(self.sampling), "seed": self.seed}
        later = [field.name for field in fields(Sampling) if field.name not in FIRST_FIELDS]
        return {name: value for name, value in values.items() if name not in later or value != getattr(_UNASKED, name)}


def read_sampling(given: Mapping[str, Any], defaults: Defaults) -> Asked:
    """The fields of FIELDS. Raises BadRequest."""
    most_tokens = integer(given, "max_tokens", 1, MOST_TOKENS, default=0)
    sampling = Sampling(
        max_tokens=most_tokens,
        temperature=number(given, "temperature", 0, 2, default=defaults.temperature),
        top_p=positive(given, "top_p", 1, default=defaults.top_p),
        top_k=max(0, integer(given, "top_k", -1, MOST_TOP_K, default=0)),
        stop=_stop(given),
        presence_penalty=number(given, "presence_penalty", -MOST_PENALTY, MOST_PENALTY, default=0.0),
        frequency_penalty=number(given, "frequency_penalty", -MOST_PENALTY, MOST_PENALTY, default=0.0),
        repetition_penalty=positive(given, "repetition_penalty", MOST_PENALTY, default=1.0),
        min_tokens=integer(given, "min_tokens", 0, most_tokens or MOST_TOKENS, default=0),
        ignore_eos=boolean(given, "ignore_eos"),
        top_logprobs=_top_logprobs(given),
    )
    seed = integer(given, "seed", 0, MOST_SEED, default=0) if given.get("seed") is not None else None
    return Asked(sampling, seed)


def _top_logprobs(given: Mapping[str, Any]) -> int | None:
    top = integer(given, "top_logprobs", 0, MOST_TOP_LOGPROBS, default=0)
    if boolean(given, "logprobs"):
        return top
    if top:
        raise bad("top_logprobs", top, "logprobs to be true as well")
    return None


def _stop(given: Mapping[str, Any]) -> tuple[str, ...]:
    value = given.get("stop")
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    good = isinstance(stops, list) and len(stops) <= MOST_STOPS
    if not good or not all(isinstance(stop, str) and 0 < len(stop) <= MOST_STOP_CHARACTERS for stop in stops):
        expected = f"a text or a list of at most {MOST_STOPS}, each of 1 to {MOST_STOP_CHARACTERS} characters"
        raise bad("stop", value, expected)
    return tuple(stops)

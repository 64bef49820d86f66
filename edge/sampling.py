"""How the tokens of a reply are to be drawn: the fields that every way to ask for one has in common.

Names and ranges are OpenAI's, and vLLM's where OpenAI has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from edge.config import Defaults
from edge.fields import Integers, Numbers, bad, boolean, integer, number
from schemas.events import Sampling

MAX_TOKENS = Integers(1, 1_000_000)
INTEGERS: Mapping[str, Integers] = {
    "max_tokens": MAX_TOKENS,
    "top_k": Integers(-1, 1_000_000),
    "seed": Integers(0, 2**63 - 1),
    "min_tokens": Integers(0, MAX_TOKENS.most),
    "top_logprobs": Integers(0, 20),
}
NUMBERS: Mapping[str, Numbers] = {
    "temperature": Numbers(0, 2),
    "top_p": Numbers(0, 1, over=True),
    "presence_penalty": Numbers(-2, 2),
    "frequency_penalty": Numbers(-2, 2),
    "repetition_penalty": Numbers(0, 2, over=True),
}
BOOLEANS = ("ignore_eos", "logprobs")
FIELDS = (*INTEGERS, *NUMBERS, *BOOLEANS, "stop")
MOST_STOPS = 4
MOST_STOP_CHARACTERS = 256

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

    def whole(name: str) -> int:
        return integer(given, name, INTEGERS[name], default=0)

    def real(name: str, default: float) -> float:
        return number(given, name, NUMBERS[name], default)

    least = whole("min_tokens")
    most = whole("max_tokens")
    if 0 < most < least:
        raise bad("min_tokens", least, str(Integers(0, most)))
    sampling = Sampling(
        max_tokens=most,
        temperature=real("temperature", defaults.temperature),
        top_p=real("top_p", defaults.top_p),
        top_k=max(0, whole("top_k")),
        stop=_stop(given),
        presence_penalty=real("presence_penalty", 0.0),
        frequency_penalty=real("frequency_penalty", 0.0),
        repetition_penalty=real("repetition_penalty", 1.0),
        min_tokens=least,
        ignore_eos=boolean(given, "ignore_eos"),
        top_logprobs=_top_logprobs(given),
    )
    return Asked(sampling, None if given.get("seed") is None else whole("seed"))


def _top_logprobs(given: Mapping[str, Any]) -> int | None:
    top = integer(given, "top_logprobs", INTEGERS["top_logprobs"], default=0)
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

"""What a replica says of itself, as values that other threads may read."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.events import AttemptDropped


@dataclass(frozen=True)
class Load:
    """What a heartbeat says of a replica. `step` counts steps, so that a stuck one is seen."""

    running: int = 0
    waiting: int = 0
    free_blocks: int = 0
    step: int = 0
    p99_step_ms: float = 0.0
    lanes: tuple[tuple[str, int], ...] = ()
    dropped: tuple[AttemptDropped, ...] = ()
    draining: bool = False


@dataclass(frozen=True)
class Requests:
    """How many requests of a replica have come to which end: `stopped` at a stop or an end of sequence, `full` at
    their most tokens, `aborted` as they were told, `dropped` for another replica to continue, `refused` unbegun.
    """

    stopped: int = 0
    full: int = 0
    aborted: int = 0
    dropped: int = 0
    refused: int = 0

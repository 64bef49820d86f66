"""History: what of `turns` goes to the conversation store.

In: a batch of decoded records of `turns` with their offsets. Out: the turns to save, none dropped and none merged:
the store itself keeps the newest version of a message, and learns from the oldest one where it belongs.
The runner commits the batch's positions only after `keep` has returned.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import TurnSaved
from topics.store.contract import SavedAt, Store


def turns_in(batch: Iterable[tuple[int, object]]) -> tuple[SavedAt, ...]:
    """The turns among (offset, event) pairs; an event of another type is for other readers of the topic."""
    return tuple(SavedAt(offset, event) for offset, event in batch if isinstance(event, TurnSaved))


def keep(batch: Iterable[tuple[int, object]], store: Store) -> None:
    """Saves the batch's turns, all or none. Raises Unavailable, and then the same batch may be kept again."""
    if turns := turns_in(batch):
        store.save(turns)

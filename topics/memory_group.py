"""Consumer groups of the in-memory twin: members, who holds which place, what is committed.

Invariant: a place has one holder at a time. A rebalance only says who should hold what, and starts a generation: in
its next `poll` each member gives up all it has and takes what is its own now, as soon as that has been given up too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from topics.errors import Fenced
from topics.log import Place, Position, Rebalance, Record
from topics.memory_partition import Cursors, Partition


@dataclass(eq=False)
class Group:
    """One group: `members` by instance, `target` the instance that should hold a place, `holders` who does."""

    name: str
    places: tuple[Place, ...]
    members: dict[str, MemoryGroupConsumer] = field(default_factory=dict)
    generation: int = 0
    target: dict[Place, str] = field(default_factory=dict)
    holders: dict[Place, MemoryGroupConsumer] = field(default_factory=dict)
    committed: dict[Place, Position] = field(default_factory=dict)

    def join(self, member: MemoryGroupConsumer) -> None:
        """A member of a name that is taken replaces its holder, and nobody else notices."""
        earlier = self.members.get(member.instance)
        self.members[member.instance] = member
        self._free(earlier)
        if earlier is None:
            self._rebalance()

    def expel(self, instance: str) -> None:
        self._free(self.members.pop(instance, None))
        self._rebalance()

    def _rebalance(self) -> None:
        self.generation += 1
        self.target = ranges(self.places, sorted(self.members))

    def _free(self, member: MemoryGroupConsumer | None) -> None:
        self.holders = {place: holder for place, holder in self.holders.items() if holder is not member}


class MemoryGroupConsumer:
    """A member; it joins as it is made, and gets places in `poll`. `changed` guards and announces all state."""

    def __init__(
        self,
        group: Group,
        partitions: Mapping[Place, Partition],
        changed: threading.Condition,
        rebalance: Rebalance,
        instance: str,
    ) -> None:
        self.group = group
        self.instance = instance
        self._partitions = partitions
        self._changed = changed
        self._rebalance = rebalance
        self._cursors = Cursors(partitions, committed_only=True)
        self._on_hold = False
        with changed:
            group.join(self)
            self._generation = group.generation
            changed.notify_all()

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while True:
            self._settle()
            with self._changed:
                if self._settled():
                    records = [] if self._on_hold else self._cursors.take(limit)
                    left = deadline - time.monotonic()
                    if records or left <= 0:
                        return records
                    self._changed.wait(left)

    def hold(self, on: bool) -> None:
        self._on_hold = on

    def committed(self, places: Collection[Place]) -> dict[Place, Position]:
        with self._changed:
            return {place: self.group.committed[place] for place in places if place in self.group.committed}

    def membership(self) -> MemoryGroupConsumer:
        return self

    def commit(self, positions: Mapping[Place, Position]) -> None:
        with self._changed:
            self.check_holds(positions)
            self.group.committed.update(positions)

    def close(self) -> None:
        with self._changed:
            held = self._held()
        if held:
            self._rebalance.revoked(held)
        with self._changed:
            self._cursors.next.clear()
            if self.group.members.get(self.instance) is self:
                self.group.expel(self.instance)
            self._changed.notify_all()

    def check_holds(self, places: Collection[Place]) -> None:
        """Raises Fenced unless all `places` are this member's. To be called under the lock."""
        if foreign := set(places) - set(self._held()):
            raise Fenced(f"{self.instance} of group {self.group.name} no longer owns {sorted(foreign)}")

    def _settle(self) -> None:
        """Lets go and takes over what the rebalances since the last call ask; callbacks run outside the lock."""
        with self._changed:
            lost = self._lost()
        if lost:
            self._drop(lost)
            self._rebalance.lost(lost)
        with self._changed:
            self._rejoin()
            generation = self.group.generation
            leaving = self._held() if self._generation != generation else []
        if leaving:
            self._rebalance.revoked(leaving)
            self._drop(leaving)
        with self._changed:
            self._generation = generation
            coming = self._coming()
            self.group.holders.update(dict.fromkeys(coming, self))
        if coming:
            starts = self._rebalance.assigned(coming)
            with self._changed:
                for place in coming:
                    position = self.group.committed.get(place, Position(0))
                    self._cursors.add(place, starts.get(place, position.offset))

    def _rejoin(self) -> None:
        holder = self.group.members.get(self.instance)
        if holder is None:
            self.group.join(self)
            self._changed.notify_all()
        elif holder is not self:
            raise Fenced(f"another process is {self.instance} of group {self.group.name} now")

    def _drop(self, places: Collection[Place]) -> None:
        with self._changed:
            for place in places:
                self._cursors.next.pop(place, None)
                if self.group.holders.get(place) is self:
                    del self.group.holders[place]
            self._changed.notify_all()

    def _settled(self) -> bool:
        return self._generation == self.group.generation and not self._lost() and not self._coming()

    def _held(self) -> list[Place]:
        return sorted(place for place, holder in self.group.holders.items() if holder is self)

    def _lost(self) -> list[Place]:
        return sorted(place for place in self._cursors.next if self.group.holders.get(place) is not self)

    def _coming(self) -> list[Place]:
        mine = [place for place in self.group.places if self.group.target.get(place) == self.instance]
        return [p for p in mine if p not in self._cursors.next and self.group.holders.get(p, self) is self]


def ranges(places: Collection[Place], members: list[str]) -> dict[Place, str]:
    """Kafka's range assignor: each member gets a run of each topic, so that equal topics are shared out alike."""
    target: dict[Place, str] = {}
    for _, of_topic in groupby(sorted(places), key=lambda place: place.topic):
        run = list(of_topic)
        share, extra = divmod(len(run), len(members)) if members else (0, 0)
        takers = [member for rank, member in enumerate(members) for _ in range(share + (rank < extra))]
        target.update(zip(run, takers, strict=False))
    return target

"""Consumer groups of the in-memory twin: members, who holds which place, what is committed.

Invariant: a place has one holder at a time. A rebalance only says who should hold what; a place changes hands when
its holder has given it up within its own `poll` or `close`, or has been expelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from topics.errors import Fenced
from topics.log import Place, Position, Rebalance, Record
from topics.memory_partition import Cursors, Partition


@dataclass(eq=False)
class Group:
    """One group: `members` by instance, `target` the instance that should hold a place, `holders` who does."""

    name: str
    places: tuple[Place, ...]
    members: dict[str, MemoryGroupConsumer] = field(default_factory=dict)
    target: dict[Place, str] = field(default_factory=dict)
    holders: dict[Place, MemoryGroupConsumer] = field(default_factory=dict)
    committed: dict[Place, Position] = field(default_factory=dict)

    def join(self, member: MemoryGroupConsumer) -> None:
        """A member of a name that is taken replaces its holder, and nobody else notices."""
        earlier = self.members.get(member.instance)
        self.members[member.instance] = member
        self._free(earlier)
        if earlier is None:
            self.target = spread(self.places, sorted(self.members), self.target)

    def expel(self, instance: str) -> None:
        self._free(self.members.pop(instance, None))
        self.target = spread(self.places, sorted(self.members), self.target)

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
        with changed:
            group.join(self)
            changed.notify_all()

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while True:
            self._settle()
            with self._changed:
                if self._settled():
                    records = self._cursors.take(limit)
                    left = deadline - time.monotonic()
                    if records or left <= 0:
                        return records
                    self._changed.wait(left)

    def committed(self, places: Collection[Place]) -> dict[Place, Position]:
        with self._changed:
            return {place: self.group.committed[place] for place in places if place in self.group.committed}

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
            leaving = [place for place in self._held() if self.group.target[place] != self.instance]
        if lost:
            self._drop(lost)
            self._rebalance.lost(lost)
        self._rejoin()
        if leaving:
            self._rebalance.revoked(leaving)
            self._drop(leaving)
        with self._changed:
            coming = self._coming()
            self.group.holders.update(dict.fromkeys(coming, self))
        if coming:
            starts = self._rebalance.assigned(coming)
            with self._changed:
                for place in coming:
                    position = self.group.committed.get(place, Position(0))
                    self._cursors.add(place, starts.get(place, position.offset))

    def _rejoin(self) -> None:
        with self._changed:
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
        wanted = [place for place in self._held() if self.group.target[place] == self.instance]
        return not self._lost() and not self._coming() and wanted == self._held()

    def _held(self) -> list[Place]:
        return sorted(place for place, holder in self.group.holders.items() if holder is self)

    def _lost(self) -> list[Place]:
        return sorted(place for place in self._cursors.next if self.group.holders.get(place) is not self)

    def _coming(self) -> list[Place]:
        mine = [place for place in self.group.places if self.group.target.get(place) == self.instance]
        return [p for p in mine if p not in self._cursors.next and self.group.holders.get(p, self) is self]


def spread(places: Collection[Place], members: list[str], before: Mapping[Place, str]) -> dict[Place, str]:
    """Which member should hold each place: as even as can be, and as much as can be as it was `before`."""
    if not members:
        return {}
    share, extra = divmod(len(places), len(members))
    kept = {member: sum(before.get(place) == member for place in places) for member in members}
    richest_first = sorted(members, key=lambda member: (-kept[member], member))
    room = {member: share + (rank < extra) for rank, member in enumerate(richest_first)}
    target: dict[Place, str] = {}
    for place in places:
        member = before.get(place)
        if member is not None and room.get(member, 0) > 0:
            target[place] = member
            room[member] -= 1
    for place in places:
        if place not in target:
            target[place] = member = next(name for name in richest_first if room[name])
            room[member] -= 1
    return target

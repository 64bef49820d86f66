"""Heartbeats: the replica's load to the topic `replicas`, every 500 ms, and on a change at most every 50 ms.

A thread of its own, so a long prefill never looks like death; the step counter in the beat shows a stuck replica. The
same thread reads the topic, to end a replica that was replaced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from engine.errors import Replaced
from engine.load import Load
from engine.replica import Outbox, Replica
from engine.succession import Watch
from schemas.events import LanePosition, ReplicaBeat
from topics.log import Delivered

EVERY_S = 0.5
ON_CHANGE_S = 0.05


class Beats(threading.Thread):
    """Beats until `stop`; `failed` is called with the error that ended it."""

    def __init__(self, replica: Replica, watch: Watch, outbox: Outbox, failed: Callable[[BaseException], None]) -> None:
        super().__init__(name="beats", daemon=True)
        self._replica, self._watch, self._outbox, self._failed = replica, watch, outbox, failed
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            self._beat_until_stopped()
        except Replaced as error:
            self._failed(error)
        except BaseException as error:
            self._failed(error)
            raise

    def stop(self) -> bool:
        """Sends a last beat, so that what was dropped at the end is known at once; whether the log has taken it."""
        self._stopping.set()
        self.join()
        outcomes: list[Exception | None] = []
        self.beat(self._replica.load, outcomes.append)
        self._outbox.producer.close()
        self._watch.close()
        return outcomes == [None]

    def _beat_until_stopped(self) -> None:
        sent, sent_at = Load(), 0.0
        while not self._stopping.wait(ON_CHANGE_S):
            load, now = self._replica.load, time.monotonic()
            if now - sent_at >= EVERY_S or _without_steps(load) != _without_steps(sent):
                self.beat(load)
                sent, sent_at = load, now
            self.look()

    def look(self) -> None:
        """Reads the others' heartbeats. Raises Replaced."""
        self._replica.supervisor_beats = self._watch.look()

    def beat(self, load: Load, delivered: Delivered | None = None) -> None:
        """Sends one heartbeat."""
        replica = self._replica
        beat = ReplicaBeat(
            pool=replica.identity.pool,
            slot=replica.identity.slot,
            incarnation=replica.identity.incarnation,
            state="draining" if load.draining else "ready",
            capacity=replica.capacity,
            running=load.running,
            waiting=load.waiting,
            free_blocks=load.free_blocks,
            lanes=tuple(LanePosition(tier, offset) for tier, offset in load.lanes),
            step=load.step,
            p99_step_ms=load.p99_step_ms,
            fingerprint=replica.fingerprint,
            dropped=load.dropped,
        )
        output = self._outbox.routes.replica_beat(replica.identity.name, beat)
        self._outbox.producer.send(self._outbox.encoder.append(output), delivered)
        self._outbox.producer.poll()


def _without_steps(load: Load) -> Load:
    return replace(load, step=0, p99_step_ms=0.0, free_blocks=0)

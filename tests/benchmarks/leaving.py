"""`python -m tests.benchmarks.leaving`: how long nobody reads the partitions of a stage's process that goes.

Two members of a group, or one, each a process of its own on a real broker, read a topic that gets records all the
time. One of them is told to leave or is killed, and in some cases starts again under its name. Printed is the longest
that a record waited to be read from then on, in the partitions that the goer had, and in those of the other.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals, signal

from tests.contract.clusters import KafkaCluster, wait_for
from tests.stack import small_broker
from topics.config import KafkaConfig
from topics.kafka import KafkaLog
from topics.log import Append, Place, Position

PARTITIONS, EVERY_S = 4, 0.02
CASES = {
    "one of two leaves": (2, SIGTERM, False),
    "one of two leaves and starts again": (2, SIGTERM, True),
    "one of two is killed and starts again": (2, SIGKILL, True),
    "the only one leaves and starts again": (1, SIGTERM, True),
    "the only one is killed and starts again": (1, SIGKILL, True),
}


class Member:
    """Reads for one process, and says what it has read: partition, offset, time of the append in ms."""

    def __init__(self, kafka: str, topic: str, instance: str) -> None:
        self._next: dict[Place, Position] = {}
        self._consumer = KafkaLog(KafkaConfig(kafka=kafka)).group(topic, [topic], self, instance)

    def run(self) -> None:
        going = threading.Event()
        signal(SIGTERM, lambda *_: going.set())
        while not going.is_set():
            for record in self._consumer.poll(100, 0.05):
                self._next[record.place] = Position(record.offset + 1)
                print(record.place.partition, record.offset, record.timestamp_ms, flush=True)
        self._consumer.close()

    def assigned(self, places: Collection[Place]) -> Mapping[Place, int]:
        return {}

    def revoked(self, places: Collection[Place]) -> None:
        self._consumer.commit({place: self._next[place] for place in places if place in self._next})

    def lost(self, places: Collection[Place]) -> None:
        raise SystemExit(f"lost {places}")


class Process:
    """A member's process. `read` has, of each record: when it was heard of, its partition, offset, and append."""

    def __init__(self, kafka: str, topic: str, instance: str) -> None:
        self._command = [sys.executable, "-m", "tests.benchmarks.leaving", kafka, topic, instance]
        self.read: list[tuple[float, int, int, float]] = []
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def end(self, number: Signals) -> None:
        self._process.send_signal(number)
        self._process.wait()

    def partitions(self, since: float) -> set[int]:
        return {partition for heard, partition, _, _ in self.read if heard >= since}

    def _listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            if line.endswith("\n"):  # the last line of one that was killed may be half a line
                partition, offset, appended_ms = map(int, line.split())
                self.read.append((time.time(), partition, offset, appended_ms / 1000))


def waits(kafka: str, case: tuple[int, Signals, bool]) -> tuple[float, float]:
    """Of one round, in seconds: in the goer's partitions, and in the others."""
    members, number, again = case
    cluster = KafkaCluster(kafka)
    topic = cluster.topic(PARTITIONS)
    ended = writing(cluster.log, topic)
    processes = [Process(kafka, topic, f"member-{n}") for n in range(members)]
    wait_for(lambda: shared_out(processes))
    went, gone, theirs = time.time(), processes[-1], processes[-1].partitions(time.time() - 0.4)
    gone.end(number)
    if again:
        gone.start()
    left = processes if again else processes[:-1]
    wait_for(lambda: shared_out(left))
    ended()
    for process in left:
        process.end(SIGKILL)
    heard: dict[tuple[int, int], float] = {}
    for at, partition, offset, appended in sorted(line for process in processes for line in process.read):
        if appended > went:
            heard.setdefault((partition, offset), at - appended)
    longest = [max(wait for (partition, _), wait in heard.items() if partition == n) for n in range(PARTITIONS)]
    others = [longest[n] for n in range(PARTITIONS) if n not in theirs]
    return max(longest[n] for n in theirs), max(others, default=0.0)


def shared_out(processes: list[Process]) -> bool:
    """Whether each has read in its share of the partitions, and in no other, for half a second."""
    time.sleep(0.5)
    shares = [process.partitions(time.time() - 0.4) for process in processes]
    return all(len(share) == PARTITIONS // len(processes) for share in shares) and len(set.union(*shares)) == PARTITIONS


def writing(log: KafkaLog, topic: str) -> Callable[[], None]:
    """Writes to every partition until the returned function is called."""
    ended = threading.Event()

    def write() -> None:
        producer = log.producer()
        while not ended.wait(EVERY_S):
            for partition in range(PARTITIONS):
                producer.send(Append(Place(topic, partition), b"k", b"v"))
            producer.poll()
        producer.close()

    thread = threading.Thread(target=write)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    return end


def main(rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = small_broker(Path(folder))
        try:
            broker.wait_ready()
            for name, case in CASES.items():
                found = [waits(broker.bootstrap, case) for _ in range(rounds)]
                own, others = ([round_of[n] for round_of in found] for n in (0, 1))
                told = f"{statistics.median(own):5.2f} s, at most {max(own):5.2f} s"
                print(f"{name:40} {told}; in the other's {statistics.median(others):5.2f} s", flush=True)
        finally:
            broker.stop()


if __name__ == "__main__":
    Member(*sys.argv[1:]).run() if len(sys.argv) == 4 else main(*map(int, sys.argv[1:]))

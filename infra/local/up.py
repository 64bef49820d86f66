"""`laneway up`: one stack in the foreground, from preparation to the last process gone.

In: the settings. Out: progress lines, then the URLs, the key and a command to try; after SIGINT or
SIGTERM everything drains. A second signal while it drains kills what is left.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType

from infra.config import UpConfig
from infra.local.stack import Places, Stack
from infra.local.state import DataFolder
from schemas.settings import load
from topics.config import KafkaConfig


def up(config: UpConfig, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Runs until it is told to stop. Raises LocalError when it cannot start."""
    # SIGINT too: a shell starts background commands with it ignored.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, interrupt)
    with DataFolder(config.data).lock():
        began = time.monotonic()
        stack = Stack(config, load(KafkaConfig, environ), say)
        try:
            places = stack.start({}, lambda log: say(f"topics: {ensure_topics(log)}"))
            say(announcement(places, stack.keys["demo"], time.monotonic() - began))
            stack.supervisor.run()
        except KeyboardInterrupt:
            say("draining: streams end, then the stages, then Kafka")
        finally:
            stack.stop()
        say("stopped")


def interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def ensure_topics(log: KafkaConfig) -> object:
    """Creates what is missing of the catalog; the report that `admin.ensure` gives."""
    from topics import admin

    return admin.ensure(log)


def announcement(places: Places, key: str, seconds: float) -> str:
    first = places.edges[0]
    return f"""
Laneway is ready after {seconds:.0f} s.

  edges      {"  ".join(places.edges)}
  API key    {key}
  Kafka      {places.kafka}

Open {first}/ in a browser and sign in with the key, or try it here:
  curl -N {first}/v1/conversations/hello/messages \\
    -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\
    -H 'Accept: text/event-stream' -d '{{"text": "What is the capital of France?"}}'
  {sys.argv[0]} chat

Ctrl-C stops it.
"""

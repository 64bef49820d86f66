"""An encoder that is watched: what a process writes is counted as it leaves, and carries its trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from schemas.codec import Codec
from schemas.ids import Incarnation
from topics.catalog import Sizes
from topics.log import Append
from topics.outputs import Encoder, Output
from topics.telemetry.trace import Spans

Wrote = Callable[[Output], None]


class WatchedEncoder(Encoder):
    def __init__(
        self, codec: Codec, sizes: Sizes, writer: Incarnation, wrote: Wrote, spans: Spans | None = None
    ) -> None:
        super().__init__(codec, sizes, writer)
        self._wrote, self._spans = wrote, spans

    def append(self, output: Output) -> Append:
        append = super().append(output)
        self._wrote(output)
        headers = self._spans.headers(output) if self._spans else ()
        return replace(append, headers=append.headers + headers) if headers else append

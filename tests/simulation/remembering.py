"""The codec of a run: each record is decoded once, however many read it. Events are frozen, so all may share one."""

from __future__ import annotations

from typing import Any

from schemas.codec import Codec


class RememberingCodec(Codec):
    def __init__(self) -> None:
        super().__init__()
        self.decoded: dict[bytes, Any] = {}

    def decode(self, value: bytes | None) -> Any:
        if value is None:
            return super().decode(value)
        if value not in self.decoded:
            self.decoded[value] = super().decode(value)
        return self.decoded[value]


CODEC = RememberingCodec()

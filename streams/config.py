"""Settings of the stages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas.settings import SettingError, setting


@dataclass(frozen=True)
class StreamsConfig:
    model: Path = setting("LANEWAY_MODEL", default=Path(".laneway/models/smollm2-135m-instruct"), doc="model folder")
    mini: str = setting("LANEWAY_MINI_MODEL", default="", doc="name of the model in pool mini, for past a limit")
    mini_folder: Path | None = setting(
        "LANEWAY_MINI_FOLDER", default=None, doc="its folder, for its tokenizer; as LANEWAY_MODEL if not given"
    )
    backlog: int = setting("LANEWAY_BACKLOG", default=1_000, doc="requests a tier may queue before new ones are shed")
    abandoned: float = setting(
        "LANEWAY_ABANDON_AFTER", default=30.0, doc="seconds a reply goes on when nobody listens to it"
    )
    stranded: float = setting(
        "LANEWAY_NO_REPLICA_AFTER", default=60.0, doc="seconds a reply waits while no replica takes requests"
    )
    active_cache: int = setting(
        "LANEWAY_ACTIVE_CACHE",
        default=16 * 1024 * 1024,
        doc="bytes of turns that intake holds of each partition of messages, beside those of conversations in progress",
    )
    instance: str = setting("LANEWAY_INSTANCE", default="0", doc="this process's fixed name among those of its stage")

    def __post_init__(self) -> None:
        if self.backlog < 1:
            raise SettingError(f"LANEWAY_BACKLOG={self.backlog}: expected an integer of at least 1")
        if self.active_cache < 0:
            raise SettingError(f"LANEWAY_ACTIVE_CACHE={self.active_cache}: expected a number of bytes, 0 or more")
        for key, value in (("LANEWAY_ABANDON_AFTER", self.abandoned), ("LANEWAY_NO_REPLICA_AFTER", self.stranded)):
            if not value > 0:
                raise SettingError(f"{key}={value}: expected a positive number")

"""Java programs from packages: jars by jgo into a folder that later starts, and other stacks, find them in."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.local.errors import StartError


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Waits until no other process is in here with that file."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Program:
    """What to download: `coordinates` name it to Maven, `title` and `size` to people."""

    name: str
    version: str
    coordinates: str
    title: str
    size: str

    def jars(self, cache: Path, progress: Callable[[str], None]) -> tuple[Path, ...]:
        """Its class path, downloaded into `cache` the first time; the network is not touched after that.

        Raises StartError when the download fails; a retry goes on with what has arrived.
        """
        listing = cache / f"{self.name}-{self.version}.json"
        cache.mkdir(parents=True, exist_ok=True)
        with alone(cache / "lock"):  # two that download at once would read each other's halves
            jars = _listed(cache, listing)
            return jars or self._download(cache, listing, progress)

    def _download(self, cache: Path, listing: Path, progress: Callable[[str], None]) -> tuple[Path, ...]:
        progress(f"downloading {self.title} {self.version} ({self.size}, once)")
        # The resolver takes a third of a second to import, and is needed once.
        import jgo

        try:
            jars = tuple(Path(jar) for jar in jgo.build(self.coordinates, cache_dir=cache.absolute()).all_jars)
        except (OSError, RuntimeError, ValueError) as error:
            raise StartError(f"{self.title} could not be downloaded: {error}") from error
        fresh = listing.with_suffix(".new")
        fresh.write_text(json.dumps([str(jar.relative_to(cache.absolute())) for jar in jars]))
        fresh.replace(listing)
        return jars


def _listed(cache: Path, listing: Path) -> tuple[Path, ...]:
    """What an earlier download brought; nothing unless all of it is there."""
    names = json.loads(listing.read_text()) if listing.exists() else []
    jars = tuple(cache / name for name in names)
    return jars if all(jar.exists() for jar in jars) else ()

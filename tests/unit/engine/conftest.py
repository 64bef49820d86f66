"""The models that engine tests run, tiny and random, and the ops that they run on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.ops import choose
from engine.ops.contract import Ops
from schemas.tokenizer import ChatTokenizer
from tests.tiny_llama import write_tiny_llama

COMPUTED_WITH = {
    "reference": ("reference", torch.float32),
    "cpu": ("cpu", torch.float32),
    "cpu-bf16": ("cpu", torch.bfloat16),
    "cpu-int8": ("cpu", torch.int8),
}


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[int]:
    """One, for models so small that threads would mostly wait for each other, and for those of other tests."""
    before, threads = torch.get_num_threads(), 1
    torch.set_num_threads(threads)
    yield threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny: Path) -> ChatTokenizer:
    return ChatTokenizer.load(tiny)


@pytest.fixture(scope="session")
def cpu_ops() -> Ops:
    return choose.ops("cpu")


@pytest.fixture(scope="session", params=COMPUTED_WITH.values(), ids=COMPUTED_WITH)
def computed_with(request: pytest.FixtureRequest) -> tuple[Ops, torch.dtype]:
    """Everything that a replica may compute with."""
    name, dtype = request.param
    return choose.ops(name), dtype


@pytest.fixture(scope="session")
def ops(computed_with: tuple[Ops, torch.dtype]) -> Ops:
    return computed_with[0]


@pytest.fixture(scope="session")
def dtype(computed_with: tuple[Ops, torch.dtype]) -> torch.dtype:
    return computed_with[1]

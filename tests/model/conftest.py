"""The real chat model, fetched once, and loaded once for all tests that run it."""

from pathlib import Path

import pytest

from engine.model_runner import ModelRunner
from engine.ops import choose
from engine.ops.contract import Ops
from engine.weights import Weights, load_weights
from infra.local.model import fetch
from schemas.tokenizer import ChatTokenizer

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session", params=["reference", "cpu"])
def ops(request: pytest.FixtureRequest) -> Ops:
    return choose.ops(request.param)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return fetch(REPOSITORY / ".laneway" / "models" / "smollm2-135m-instruct", print)


@pytest.fixture(scope="session")
def tokenizer(smollm2: Path) -> ChatTokenizer:
    return ChatTokenizer.load(smollm2)


@pytest.fixture(scope="session")
def weights(smollm2: Path) -> Weights:
    return load_weights(smollm2)


@pytest.fixture(scope="session")
def chat(weights: Weights, tokenizer: ChatTokenizer, ops: Ops) -> ModelRunner:
    """It packs tensors of its own, so `weights` stay whole for others."""
    return ModelRunner(Weights(weights.config, dict(weights.tensors), weights.digest), 160, tokenizer.eos_ids, ops)

"""The models that engine tests run: the real chat model, fetched once, and a tiny random one."""

from pathlib import Path

import pytest

from infra.local.model import fetch
from schemas.tokenizer import ChatTokenizer
from tests.tiny_llama import write_tiny_llama

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return fetch(REPOSITORY / ".laneway" / "models" / "smollm2-135m-instruct", print)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny: Path) -> ChatTokenizer:
    return ChatTokenizer.load(tiny)

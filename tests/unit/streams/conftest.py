"""The tokenizer that every stage's test is made with: one token per byte, a context of 512."""

import pytest
from hypothesis import settings

from schemas.tokenizer import ChatTokenizer
from tests.tiny_tokenizer import write_tokenizer

settings.register_profile("laneway", deadline=None)
settings.load_profile("laneway")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer.load(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))

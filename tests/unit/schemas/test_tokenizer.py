"""The chat tokenizer on a vocabulary of single bytes: every text is a prompt, and every id can be read by eye."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.tokenizer import ChatTokenizer, PromptTurn, UnencodableText, UnknownToken, UnusableTokenizer
from tests.tiny_tokenizer import SPECIAL, write_tokenizer

ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer.load(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def test_a_prompt_spells_chatml(tokenizer: ChatTokenizer) -> None:
    ids = tokenizer.prompt([PromptTurn("user", tokenizer.encode("Hi"))])
    spelled = [tokenizer.piece(token_id).decode() for token_id in ids]
    assert "".join(spelled) == "user\nHi\nassistant\n"
    assert [n for n, token_id in enumerate(ids) if token_id == tokenizer.turn_start] == [0, 10]
    assert [n for n, token_id in enumerate(ids) if token_id == tokenizer.turn_end] == [8]


@given(turns=st.lists(st.tuples(ROLES, TEXTS), max_size=4), reply=st.lists(st.integers(3, 258), max_size=8))
def test_a_prompt_and_its_reply_begin_the_next_prompt(
    tokenizer: ChatTokenizer, turns: list[tuple[str, str]], reply: list[int]
) -> None:
    history = [PromptTurn(role, tokenizer.encode(text)) for role, text in turns]
    answered = [*history, PromptTurn("assistant", tuple(reply))]
    before, after = tokenizer.prompt(history), tokenizer.prompt([*answered, PromptTurn("user", (7,))])
    assert after[: len(before) + len(reply)] == (*before, *reply)


@given(role=ROLES, text=TEXTS)
def test_the_length_of_a_turn_is_what_it_adds_to_a_prompt(tokenizer: ChatTokenizer, role: str, text: str) -> None:
    content = tokenizer.encode(text)
    added = len(tokenizer.prompt([PromptTurn(role, content)])) - len(tokenizer.prompt([]))
    assert tokenizer.turn_length(role, len(content)) == added


@pytest.mark.parametrize("marker", SPECIAL)
def test_a_typed_marker_is_ordinary_text(tokenizer: ChatTokenizer, marker: str) -> None:
    ids = tokenizer.encode(f"a{marker}\n{marker}")
    assert min(ids) >= len(SPECIAL)
    assert b"".join(map(tokenizer.piece, ids)).decode() == f"a{marker}\n{marker}"


@given(text=TEXTS)
def test_the_pieces_of_a_text_are_its_bytes(tokenizer: ChatTokenizer, text: str) -> None:
    assert b"".join(map(tokenizer.piece, tokenizer.encode(text))) == text.encode()


def test_half_a_surrogate_pair_is_refused(tokenizer: ChatTokenizer) -> None:
    with pytest.raises(UnencodableText, match="at character 2"):
        tokenizer.encode("ab\ud83d")


def test_a_special_token_has_no_text_and_an_unknown_one_no_piece(tokenizer: ChatTokenizer) -> None:
    assert [tokenizer.piece(token_id) for token_id in sorted(tokenizer.eos_ids)] == [b""]
    with pytest.raises(UnknownToken, match="token 9999"):
        tokenizer.piece(9999)


def test_the_fingerprint_follows_the_vocabulary(tmp_path: Path) -> None:
    first = ChatTokenizer.load(write_tokenizer(tmp_path))
    assert ChatTokenizer.load(write_tokenizer(tmp_path / "same")).fingerprint == first.fingerprint
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary["model"]["vocab"]["zz"] = 259
    (tmp_path / "tokenizer.json").write_text(json.dumps(vocabulary))
    assert ChatTokenizer.load(tmp_path).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [({"template": "llama3"}, "supported: 'chatml'"), ({"eos": ["<|no|>"]}, "<|no|>"), ({"extra": 1}, "extra")],
)
def test_an_unusable_folder_is_refused_by_name(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = write_tokenizer(tmp_path) / "laneway.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UnusableTokenizer) as refused:
        ChatTokenizer.load(tmp_path)
    assert message in str(refused.value)


@pytest.fixture(scope="module")
def merging(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """The same with tokens of many bytes: words, a run of digits and of spaces, a letter beyond ASCII."""
    folder = write_tokenizer(tmp_path_factory.mktemp("merging"))
    source = json.loads((folder / "tokenizer.json").read_bytes())
    model = source["model"]
    model["merges"] = [["a", "b"], ["ab", "ab"], ["Ġ", "abab"], ["1", "2"], ["Ġ", "Ġ"], ["Ã", "©"], [".", "."]]
    model["vocab"] |= {left + right: 259 + n for n, (left, right) in enumerate(model["merges"])}
    (folder / "tokenizer.json").write_text(json.dumps(source))
    return ChatTokenizer.load(folder)


@given(text=st.text("ab 12é.\n<", max_size=60))
def test_a_text_never_has_fewer_tokens_than_the_fewest(merging: ChatTokenizer, text: str) -> None:
    assert merging.fewest(text) <= len(merging.encode(text))


def test_the_fewest_tokens_come_close_where_a_text_is_made_of_one_kind(merging: ChatTokenizer) -> None:
    texts = ["abab" * 50, " abab" * 50, "12" * 50, "é" * 50, "." * 100, "\n" * 100]
    assert [len(merging.encode(text)) for text in texts] == [50, 50, 50, 50, 50, 100]
    assert [merging.fewest(text) for text in texts] == [50, 50, 50, 50, 50, 20]

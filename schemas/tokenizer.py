"""Text to token ids and back, and the chat template at token level.

In: a model folder with `tokenizer.json` (Hugging Face's byte-level BPE) and `laneway.json`. Out: prompts of token ids.
The invariant: a prompt followed by the reply's ids is a prefix of the next turn's prompt, so a prefix cache always
hits; and no text that a user types ever becomes a special token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders

TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"


class TokenizerError(ValueError):
    """The root of this module's errors. A retry does not help."""


class UnusableTokenizer(TokenizerError):
    """The model folder's files cannot be used; the message names the file and what is wrong in it."""


class UnencodableText(TokenizerError):
    """The text holds half a surrogate pair, which no UTF-8 can carry."""


class UnknownToken(TokenizerError):
    """A token id that the vocabulary does not have."""


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """A turn as a prompt takes it: the content's token ids, without the template around them."""

    role: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """`laneway.json`: `context` in tokens, `eos` the tokens that end a reply, `system` the default system prompt.

    `temperature` and `top_p` are for requests that ask for none.
    """

    name: str
    context: int
    template: str
    eos: tuple[str, ...]
    system: str
    temperature: float = 1.0
    top_p: float = 1.0

    @classmethod
    def read(cls, path: Path) -> ChatSettings:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        try:
            settings = cls(**{**fields, "eos": tuple(fields["eos"])})
        except (KeyError, TypeError) as error:
            raise UnusableTokenizer(f"{path}: needs name, context, template, eos and system ({error})") from None
        if settings.template != "chatml":
            raise UnusableTokenizer(f"{path}: template {settings.template!r}; supported: 'chatml'")
        return settings


class ChatTokenizer:
    """One model's tokenizer and template. Loads in a tenth of a second, without torch."""

    def __init__(self, tokenizer: Tokenizer, settings: ChatSettings, fingerprint: str) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True
        self._pieces = _pieces(tokenizer)
        self._most_in_a_piece = _most(self._pieces.values()) if tokenizer.normalizer is None else {}
        self.vocabulary = max(self._pieces) + 1
        self.name = settings.name
        self.context = settings.context
        self.system = settings.system
        self.fingerprint = fingerprint
        self.turn_start, self.turn_end = self._special(TURN_START), self._special(TURN_END)
        self.eos_ids = frozenset(self._special(text) for text in settings.eos)
        self._newline = self.encode("\n")
        self._headers = {role: self._encode_header(role) for role in ("system", "user", "assistant")}

    @classmethod
    def load(cls, folder: Path) -> ChatTokenizer:
        """The tokenizer of a model folder. Raises UnusableTokenizer, or OSError when a file is missing."""
        settings = ChatSettings.read(folder / "laneway.json")
        source = (folder / "tokenizer.json").read_bytes()
        tokenizer = Tokenizer.from_buffer(source)
        if not isinstance(tokenizer.decoder, decoders.ByteLevel):
            raise UnusableTokenizer(f"{folder / 'tokenizer.json'}: not a byte-level BPE")
        digest = hashlib.blake2b(source, digest_size=8)
        digest.update(settings.template.encode())
        return cls(tokenizer, settings, digest.hexdigest())

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of `text`, special tokens off: `<|im_end|>` in it is spelled with ordinary tokens.

        Raises UnencodableText for a lone surrogate.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UnencodableText(f"lone surrogate {text[error.start]!r} at character {error.start}") from None
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def fewest(self, text: str) -> int:
        """A number of tokens that `text` has at least, hundreds of times faster than they are counted.

        Of the letters, words, ... of a text, each token of the vocabulary covers at most so many.
        """
        counts = _counts(text.encode("utf-8", "replace"))
        return max((-(-counts[kind] // most) for kind, most in self._most_in_a_piece.items() if most), default=0)

    def header(self, role: str) -> tuple[int, ...]:
        """The ids that open a turn of `role`; `header("assistant")` ends every prompt."""
        return self._headers.get(role) or self._encode_header(role)

    def prompt(self, turns: Iterable[PromptTurn]) -> tuple[int, ...]:
        """ChatML: each turn as `<|im_start|>role\\n` content `<|im_end|>\\n`, then the assistant's header."""
        ids: list[int] = []
        for turn in turns:
            ids += self.header(turn.role)
            ids += turn.token_ids
            ids.append(self.turn_end)
            ids += self._newline
        ids += self.header("assistant")
        return tuple(ids)

    def turn_length(self, role: str, content_length: int) -> int:
        """How many tokens of a prompt a turn with `content_length` ids takes; the last header comes on top."""
        return len(self.header(role)) + content_length + 1 + len(self._newline)

    def piece(self, token_id: int) -> bytes:
        """The bytes that a token stands for; of a special token none. Raises UnknownToken."""
        try:
            return self._pieces[token_id]
        except KeyError:
            raise UnknownToken(f"token {token_id} is not in the vocabulary of {self.name}") from None

    def _encode_header(self, role: str) -> tuple[int, ...]:
        return (self.turn_start, *self.encode(f"{role}\n"))

    def _special(self, text: str) -> int:
        token_id = self._tokenizer.token_to_id(text)
        if token_id is None or self._pieces[token_id]:
            raise UnusableTokenizer(f"{self.name}: the vocabulary has no special token {text}")
        return token_id


def _pieces(tokenizer: Tokenizer) -> dict[int, bytes]:
    byte_of = _byte_of_character()
    added = tokenizer.get_added_tokens_decoder()
    pieces = {
        token_id: bytes(map(byte_of.__getitem__, token))
        for token, token_id in tokenizer.get_vocab().items()
        if token_id not in added
    }
    pieces.update((token_id, b"" if token.special else token.content.encode()) for token_id, token in added.items())
    return pieces


_LETTERS = bytes([*range(0x41, 0x5B), *range(0x61, 0x7B)])
_DIGITS = b"0123456789"
_SPACES = b" \t\n\r\x0b\x0c"
_BEYOND_ASCII = bytes(range(0x80, 0x100))


def _counts(piece: bytes) -> dict[str, int]:
    """What a piece of text has of each kind; the sum over the pieces of a text is at least the text's own count."""
    return {
        "bytes": len(piece),
        "letters": len(piece) - len(piece.translate(None, _LETTERS)),
        "digits": len(piece) - len(piece.translate(None, _DIGITS)),
        "beyond ASCII": len(piece) - len(piece.translate(None, _BEYOND_ASCII)),
        "others": len(piece.translate(None, _LETTERS + _DIGITS + _SPACES + _BEYOND_ASCII)),
        "words": len(piece.split()),
    }


def _most(pieces: Iterable[bytes]) -> dict[str, int]:
    """The most that one piece has of each kind."""
    counted = [_counts(piece) for piece in pieces]
    return {kind: max(counts[kind] for counts in counted) for kind in counted[0]}


def _byte_of_character() -> dict[str, int]:
    """GPT-2's table: each byte is spelled as a printable character; those without one take U+0100 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}

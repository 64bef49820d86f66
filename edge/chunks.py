"""A reply in the shapes of OpenAI's chat completions: chunks of a stream, or one object.

In: a folded reply. Out: bytes. A completion's id is the reply's, so whoever has it can ask for the reply and its log.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from edge.errors import ApiError, BadRequest, Conflict, Internal, NotNow
from edge.frames import data_frame, logprob_entry, to_json, usage
from edge.reasons import words_of
from schemas import reply_records as r
from schemas.ids import created_ms
from schemas.reply import Reply

DONE = b"data: [DONE]\n\n"


class Chunks:
    """The chunks of one reply. `usage`: every chunk has the field, null but in the one before the end."""

    def __init__(self, reply: Reply, *, usage: bool) -> None:
        self._reply = reply
        self._usage = usage

    def opening(self) -> bytes:
        """Names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def token(self, n: int) -> bytes:
        """Token n; nothing for one without text, unless its log probability is to be told."""
        text, logprob = self._reply.texts[n - 1], self._reply.logprobs.get(n)
        if not text and logprob is None:
            return b""
        return self._chunk({"content": text}, logprobs=_logprobs([logprob]) if logprob else None)

    def ending(self) -> bytes:
        """The reason why it ended, the counts if they are wanted, and the word that it is whole."""
        last = self._chunk({}, finish_reason=finish_reason(self._reply))
        counted = self._data({"choices": [], "usage": counts(self._reply)}) if self._usage else b""
        return last + counted + DONE

    def _chunk(self, delta: dict[str, str], *, logprobs: Any = None, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return self._data({"choices": [choice], **({"usage": None} if self._usage else {})})

    def _data(self, fields: dict[str, Any]) -> bytes:
        return data_frame(to_json({**_head(self._reply, "chat.completion.chunk"), **fields}))


def whole(reply: Reply) -> bytes:
    """The completion of a reply that has ended well."""
    assert reply.accepted is not None
    asked = [reply.logprobs[n] for n in sorted(reply.logprobs)]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": reply.text, "refusal": None},
        "logprobs": _logprobs(asked) if asked else None,
        "finish_reason": finish_reason(reply),
    }
    return orjson.dumps({**_head(reply, "chat.completion"), "choices": [choice], "usage": counts(reply)})


def finish_reason(reply: Reply) -> str:
    """OpenAI has no word for a reply that its user stopped: it is whole as far as anybody wanted it."""
    match reply.end:
        case r.Finished(reason=reason):
            return reason
        case r.Flagged():
            return "content_filter"
    return "stop"


def failure(reply: Reply) -> ApiError | None:
    """What a client is told of a reply that has ended without being an answer."""
    match reply.end:
        case r.Shed(reason=reason, retry_after_ms=after_ms):
            return NotNow(f"too many requests wait ({reason})", code="overloaded", retry_after_s=after_ms / 1000)
        case r.Failed(reason=reason) if reason.startswith("context_length_exceeded"):
            return BadRequest(reason, param="messages", code="context_length_exceeded")
        case r.Failed(reason=reason):
            return Internal(words_of(reason), code=reason)
        case r.Stopped(by=by) if by != "user":
            message = f"reply {reply.id} was cancelled when its client went away; send the request again"
            return Conflict(message, code="cancelled", retry_after_s=1)
    return None


def counts(reply: Reply) -> dict[str, Any]:
    assert reply.accepted is not None
    cached = {"prompt_tokens_details": {"cached_tokens": reply.cached_tokens}}
    return {**usage(reply.accepted.prompt_tokens, reply.last), **cached}


def fingerprint(reply: Reply) -> str | None:
    """Names the replica's kind: what is alike in it answers alike, token for token. None before a replica has it."""
    if reply.started is None:
        return None
    return f"fp_{hashlib.sha256(reply.started.fingerprint.encode()).hexdigest()[:12]}"


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    assert reply.accepted is not None
    return {
        "id": reply.id,
        "object": kind,
        "created": created_ms(reply.id) // 1000,
        "model": reply.accepted.model,
        "system_fingerprint": fingerprint(reply),
    }


def _logprobs(asked: list[r.TokenLogprob]) -> dict[str, Any]:
    return {"content": [logprob_entry(logprob) for logprob in asked], "refusal": None}

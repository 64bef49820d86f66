"""Events of a reply as SSE frames: bytes that any parser reads back unchanged.

A frame ends with its blank line. Its data is one line of JSON in which every character that some client takes for a
line end is escaped, so no text can end a line, an event or a stream.
"""

from __future__ import annotations

import math
from typing import Any

import orjson

from edge.reasons import words_of
from schemas import reply_records as r
from schemas.events import TurnSaved
from schemas.ids import ReplyId
from schemas.reply import Reply

PING = b": ping\n"
QUEUED = b"event: queued\ndata: {}\n\n"
PREEMPTED = b"event: preempted\ndata: {}\n\n"
RESUMING = b"event: resuming\ndata: {}\n\n"

LEAST_LOGPROB = -9999.0
EVENT_OF_STATUS = {"complete": "finished", "stopped": "stopped", "flagged": "flagged", "failed": "failed"}


def to_json(value: Any) -> bytes:
    """JSON without a raw line end of any kind: orjson escapes those below U+0020, the other three are done here."""
    text = orjson.dumps(value)
    if text.isascii():
        return text
    return (
        text.replace(b"\xc2\x85", b"\\u0085").replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    )


def frame(event: str, data: dict[str, Any], event_id: int) -> bytes:
    return b"event: %b\nid: %d\ndata: %b\n\n" % (event.encode(), event_id, to_json(data))


def token_frame(n: int, text: str, logprob: r.TokenLogprob | None = None) -> bytes:
    if logprob is not None:
        return frame("token", {"text": text, "logprobs": logprob_entry(logprob)}, n)
    return b'event: token\nid: %d\ndata: {"text":%b}\n\n' % (n, to_json(text))


def logprob_entry(logprob: r.TokenLogprob) -> dict[str, Any]:
    """OpenAI's shape: a token's text, which half a character does not have, its bytes, and its likeliest rivals."""
    return {**_likely(logprob), "top_logprobs": [_likely(rival) for rival in logprob.top]}


def _likely(token: r.TokenLogprob | r.LikelyToken) -> dict[str, Any]:
    """What is impossible has OpenAI's number for it, since JSON has no infinity."""
    text = token.token.decode("utf-8", "replace")
    return {"token": text, "logprob": max(token.logprob, LEAST_LOGPROB), "bytes": list(token.token)}


def retry_frame(milliseconds: int) -> bytes:
    """Tells the client when to come back; sent last by an edge that is about to leave.

    No blank line: the field counts at its line end, and some parsers make an event of every block.
    """
    return b"retry: %d\n" % milliseconds


def error_frame(body: bytes) -> bytes:
    """An error after the first byte; it has no id, so the client's cursor stays where it can resume."""
    return b"event: error\ndata: %b\n\n" % body


def data_frame(data: bytes) -> bytes:
    """A frame without a name and an id, as OpenAI's clients read it; `data` is one line."""
    return b"data: %b\n\n" % data


def accepted_frame(reply: ReplyId, accepted: r.Accepted) -> bytes:
    data = {
        "reply": reply,
        "conversation": accepted.conversation,
        "user_message": accepted.user_message,
        "assistant_message": accepted.assistant_message,
        "model": accepted.model,
        **({"max_tokens": accepted.max_tokens} if accepted.max_tokens else {}),
        **({"asked_model": accepted.asked_model} if accepted.asked_model else {}),
    }
    return frame("accepted", data, 0)


def end_frame(reply: Reply) -> bytes:
    """The last frame of an accepted reply that has ended; its id is one past the last token."""
    assert reply.accepted is not None and reply.end_id is not None
    counts = usage(reply.accepted.prompt_tokens, reply.last)
    match reply.end:
        case r.Finished(reason=reason):
            data: dict[str, Any] = {"finish_reason": reason}
        case r.Flagged(category=category):
            data = {"category": category}
        case r.Shed(reason=reason, retry_after_ms=after_ms):
            data = {"reason": reason, "retry_after": math.ceil(after_ms / 1000)}
        case r.Failed(reason=reason):
            data = {"reason": reason, "message": words_of(reason)}
        case _:
            data = {"reason": reply.reason}
    return frame(reply.state.value.lower(), data | {"usage": counts}, reply.end_id)


def stored_frames(user_turn: TurnSaved | None, turn: TurnSaved) -> bytes:
    """A whole reply from the store, its text in one token frame; the ids are those of the log that has expired."""
    accepted = {
        "reply": turn.reply,
        "conversation": turn.conversation,
        "user_message": user_turn.turn.message if user_turn else turn.turn.parent,
        "assistant_message": turn.turn.message,
        "model": turn.model,
    }
    last = turn.completion_tokens
    event = EVENT_OF_STATUS.get(turn.turn.status, "failed")
    why = {"finished": "finish_reason", "flagged": "category"}.get(event, "reason")
    end: dict[str, Any] = {why: turn.reason, "usage": usage(turn.prompt_tokens, last)}
    if event == "failed":
        end["message"] = words_of(turn.reason or "internal")
    text = token_frame(last, turn.turn.text) if last else b""
    return frame("accepted", accepted, 0) + text + frame(event, end, last + 1)


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }

"""Records of replies for tests: from the fields that matter, and whole histories drawn by hypothesis."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from schemas import reply_records as r
from schemas.events import Origin, pack_ids
from schemas.ids import ReplyId
from schemas.reply import Record, Reply

REPLY = ReplyId("r00000-00000000000000000000000000000000-00000000")
ORIGIN = Origin("generate.main.paid", 0, 7)

PLAUSIBLE: dict[str, Any] = {
    "user": "ada",
    "account": "acme",
    "plan": "paid",
    "conversation": "c1",
    "user_message": "u-1",
    "assistant_message": "a-1",
    "stored": True,
    "model": "model",
    "pool": "main",
    "tier": "paid",
    "prompt_tokens": 5,
    "seed": 1,
    "deadline_ms": 600_000,
    "on_disconnect": "continue",
    "checked": False,
    "tokenizer": "tokenizer",
    "reason": "stop",
    "retry_after_ms": 1000,
    "to": REPLY,
    "replica": "main-0",
    "incarnation": "a",
    "request": ORIGIN,
    "fingerprint": "fingerprint",
    "cached_tokens": 0,
    "attempt": 1,
    "category": "harm",
    "by": "user",
    "edge": "e1",
    "stream": "s1",
    "time_zone": "UTC",
    "balances": (),
}


def record(kind: str, **fields: Any) -> Record:
    """A record of `kind` with these fields, and plausible values for the rest that have no default."""
    cls = getattr(r, kind)
    if kind == "Tokens":
        fields.setdefault("ids", ids_of(fields["texts"]))
        fields["texts"] = tuple(fields["texts"])
    needed = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING]
    made: Record = cls(**{name: PLAUSIBLE[name] for name in needed if name not in fields} | fields)
    return made


def record_of(fields: Mapping[str, Any]) -> Record:
    return record(fields["type"], **{name: value for name, value in fields.items() if name != "type"})


def ids_of(texts: Iterable[str]) -> bytes:
    return pack_ids(zlib.crc32(text.encode()) for text in texts)


def fold(records: Iterable[Record]) -> Reply:
    """The reply that these records make when each lies at the offset of its index."""
    reply = Reply(REPLY)
    for offset, each in enumerate(records):
        reply.apply(offset, each)
    return reply


def outcome(reply: Reply) -> dict[str, object]:
    """What a reader can tell of a reply."""
    names = ("text", "ids", "texts", "last", "end_id", "reason", "end", "attempt", "owner")
    return {name: getattr(reply, name) for name in names}


ATTEMPTS = st.integers(1, 3)
INCARNATIONS = st.sampled_from("abc")
COUNTS = st.integers(0, 6)
OF_ATTEMPT = {"attempt": ATTEMPTS, "incarnation": INCARNATIONS}

FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "Accepted": {"checked": st.booleans()},
    "Rejected": {},
    "Redirected": {},
    "UsageTold": {},
    "Dispatched": OF_ATTEMPT,
    "Started": OF_ATTEMPT,
    "Tokens": OF_ATTEMPT
    | {"first": st.integers(1, 4), "texts": st.lists(st.sampled_from("xyz"), min_size=1, max_size=3)},
    "Preempted": OF_ATTEMPT,
    "AttemptOpened": {"attempt": ATTEMPTS},
    "Cleared": {"upto": COUNTS},
    "Flagged": {"upto": COUNTS},
    "Finished": OF_ATTEMPT | {"count": COUNTS},
    "Stopped": {"by": st.just("abandoned"), "seen": st.none() | st.integers(0, 30)},
    "Shed": {},
    "Failed": {},
    "ListenerAttached": {},
    "ListenerDetached": {},
}
ENDS = ("Rejected", "Redirected", "UsageTold", "Flagged", "Finished", "Stopped", "Shed", "Failed")


def any_record(*, without: Iterable[str] = ()) -> st.SearchStrategy[Record]:
    """Records that fit or do not: readers must take whatever the log holds."""
    kinds = st.sampled_from(sorted(FIELDS.keys() - set(without)))
    return kinds.flatmap(lambda kind: st.builds(record, st.just(kind), **FIELDS[kind]))


@st.composite
def clean_history(draw: st.DrawFn) -> list[Record]:
    """A reply as it should be: one to three attempts, each by a replica of its own, and every record counts."""
    checked = draw(st.booleans())
    history, count = [record("Accepted", checked=checked)], 0
    attempts = draw(ATTEMPTS)
    for attempt in range(1, attempts + 1):
        by = {"attempt": attempt, "incarnation": "abc"[attempt - 1]}
        if attempt > 1:
            history.append(record("AttemptOpened", attempt=attempt))
        history += [record("Dispatched", **by)] * draw(st.integers(0, 1))
        if attempt < attempts and draw(st.booleans()):
            continue  # died before its start
        history.append(record("Started", **by))
        for texts in draw(st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=3), max_size=5)):
            if draw(st.integers(0, 4)) == 0:
                history += [record("Preempted", **by), record("Started", **by)]
            history.append(record("Tokens", first=count + 1, texts=texts, **by))
            count += len(texts)
            if checked and draw(st.booleans()):
                history.append(record("Cleared", upto=draw(st.integers(0, count))))
    finish = [record("Finished", count=count, **by)] + [record("Cleared", upto=count)] * checked
    ends = [[], finish, [record("Stopped")], [record("Failed", reason="deadline")]]
    return history + draw(st.sampled_from(ends))


@st.composite
def any_history(draw: st.DrawFn) -> list[Record]:
    """A reply with anything between its records; an end is drawn less often, so that most run on for a while."""
    history = draw(clean_history())
    for each in draw(st.lists(any_record(without=ENDS) | any_record(without=ENDS) | any_record(), max_size=10)):
        history.insert(draw(st.integers(1, len(history))), each)
    return history


@st.composite
def noisy_history(draw: st.DrawFn) -> tuple[list[Record], list[Record]]:
    """A clean history, and the same with late, repeated, foreign and older records between and behind its own."""
    clean = draw(clean_history())
    noisy: list[Record] = []
    for place, each in enumerate(clean):
        noisy.append(each)
        noise = _noise(fold(clean[: place + 1]), clean[: place + 1])
        noisy += draw(st.lists(st.sampled_from(noise), max_size=2))
    return clean, noisy


def _noise(reply: Reply, so_far: list[Record]) -> list[Record]:
    """Records that mean nothing where the reply stands now."""
    late = {"attempt": reply.attempt - 1, "incarnation": "abc"[reply.attempt - 2]}
    early = {"attempt": reply.attempt + 1, "incarnation": "a"}
    foreign = {"attempt": reply.attempt, "incarnation": "foreign"}
    noise = [record("Rejected"), record("Redirected"), record("AttemptOpened", attempt=reply.attempt + 2)]
    for by in (late, early, foreign):
        noise.append(record("Tokens", first=len(reply.texts) + 1, texts=["NOISE"], **by))
        noise.append(record("Tokens", first=1, texts=["NOISE"] * (len(reply.texts) + 1), **by))
        noise += [record("Finished", count=len(reply.texts), **by), record("Preempted", **by)]
    noise += [record("Started", **late), record("Dispatched", **late), record("Started", **early)]
    if reply.owner is not None:
        noise.append(record("Started", **foreign))
    if reply.state.ended:
        noise += [record("Stopped"), record("Failed"), record("Flagged", upto=99), record("Shed")]
    repeatable = (r.Accepted, r.Started, r.Tokens, r.AttemptOpened, r.Cleared)
    return noise + [each for each in so_far if isinstance(each, repeatable)]

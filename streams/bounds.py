"""What intake takes in: no more than its decisions and its state can be written with, whoever has posted it.

The edge's own limits are narrower; a message past these is refused before anything has changed by it.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import ROOT, MessagePosted, Turn
from topics.catalog import LARGEST_RECORD, LONGEST_DEADLINE_MS

LONGEST_NAME_BYTES = 512
MOST_STOP_CHARACTERS = 16_384
MOST_TEXT_BYTES = 1024 * 1024
MOST_SYSTEM_BYTES = 256 * 1024
# What a user's parked messages may have together, each with what it costs beside its text.
MOST_PARKED_BYTES = 1_000_000
PARKED_COST_BYTES = 1_000
MOST_TURNS_BYTES = 2 * 1024 * 1024
TURN_RECORD_BYTES = 200  # a turn's ids and names
MOST_RECORD_BYTES = LARGEST_RECORD // 2


def check_size(size: int) -> None:
    """Raises ValueError for a record that leaves a conversation's state no room for another."""
    if size > MOST_RECORD_BYTES:
        raise ValueError(f"a record of {size} bytes, more than {MOST_RECORD_BYTES}")


def check_name(field: str, name: str, least: int = 1) -> None:
    """Raises ValueError for what is no name in a record."""
    if not least <= (length := len(name.encode())) <= LONGEST_NAME_BYTES:
        raise ValueError(f"{field} has {length} bytes, expected {least} to {LONGEST_NAME_BYTES}")


def check_posted(posted: MessagePosted) -> None:
    """Raises ValueError for what no edge has written."""
    names = {
        "user": posted.user,
        "account": posted.account,
        "plan": posted.plan,
        "conversation": posted.conversation,
        "client_key": posted.client_key,
        "body_hash": posted.body_hash,
        "model": posted.model,
        "parent": posted.parent or "",
    }
    for field, name in names.items():
        check_name(field, name, least=0)
    if not 0 < posted.deadline_ms <= LONGEST_DEADLINE_MS:
        raise ValueError(f"deadline_ms={posted.deadline_ms}: expected 1 to {LONGEST_DEADLINE_MS}")
    if (stops := sum(map(len, posted.sampling.stop))) > MOST_STOP_CHARACTERS:
        raise ValueError(f"stop has {stops} characters, more than {MOST_STOP_CHARACTERS}")
    if (text := text_bytes(posted)) > MOST_TEXT_BYTES:
        raise ValueError(f"the text has {text} bytes, more than {MOST_TEXT_BYTES}")
    if (system := len((posted.system or "").encode())) > MOST_SYSTEM_BYTES:
        raise ValueError(f"system has {system} bytes, more than {MOST_SYSTEM_BYTES}")
    if not posted.messages and not posted.text and posted.parent in (None, ROOT):
        raise ValueError(f"no text, and parent={posted.parent!r} is no question to answer again")


def text_bytes(posted: MessagePosted) -> int:
    """Bytes of all that the message says."""
    own = len(posted.text.encode()) + len((posted.system or "").encode())
    return own + sum(len(m.role) + len(m.text.encode()) for m in posted.messages)


def newest_turns(turns: Sequence[Turn], tokens: int) -> tuple[Turn, ...]:
    """The newest of them, as many as have `tokens` together and as the state of a conversation can hold."""
    room = MOST_TURNS_BYTES
    for index in range(len(turns) - 1, -1, -1):
        tokens -= len(turns[index].token_ids) // 4
        room -= len(turns[index].text.encode()) + len(turns[index].token_ids) + TURN_RECORD_BYTES
        if tokens < 0 or room < 0:
            return tuple(turns[index + 1 :])
    return tuple(turns)

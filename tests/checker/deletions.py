"""Conversations that their users deleted: one of the same id that is begun later is another one.

The order is that of `messages`, where posts and deletions of a user lie in one partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.events import ConversationDeleted, MessagePosted
from schemas.ids import ConversationId, ReplyId, UserId
from tests.checker.history import History
from topics.catalog import MESSAGES


@dataclass(frozen=True)
class Lives:
    """By the reply that a message asked for, and of each conversation the last: how often it had been deleted; and
    where each message was posted first.
    """

    of_replies: Mapping[ReplyId, int]
    last: Mapping[tuple[UserId, ConversationId], int]
    posted_at: Mapping[ReplyId, int]


def lives_of(history: History) -> Lives:
    deleted: defaultdict[tuple[UserId, ConversationId], list[int]] = defaultdict(list)
    for entry in history.of(MESSAGES):
        if isinstance(entry.event, ConversationDeleted):
            deleted[entry.event.user, entry.event.conversation].append(entry.offset)
    of_replies: dict[ReplyId, int] = {}
    posted_at: dict[ReplyId, int] = {}
    for entry in history.of(MESSAGES):
        if isinstance(entry.event, MessagePosted):
            before = bisect_left(deleted[entry.event.user, entry.event.conversation], entry.offset)
            of_replies.setdefault(entry.event.reply, before)
            posted_at.setdefault(entry.event.reply, entry.offset)
    return Lives(of_replies, {conversation: len(offsets) for conversation, offsets in deleted.items()}, posted_at)

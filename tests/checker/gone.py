"""What a user has deleted is gone, and what he called a conversation is its title, as long as that lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from schemas.events import ConversationDeleted, ConversationRenamed
from schemas.ids import ConversationId, ReplyId, UserId
from tests.checker.deletions import Lives
from tests.checker.history import Entry, History
from tests.checker.telling import Told
from tests.checker.violation import Violation
from topics.catalog import MESSAGES

TELLING_CHARACTERS = 6

Name: TypeAlias = tuple[int, str]


def remembered_violations(history: History, told: Mapping[ReplyId, Told], lives: Lives) -> Iterator[Violation]:
    """Intake holds no message of a conversation that was deleted since."""
    of_messages = {}
    for one in told.values():
        if one.accepted:
            of_messages[one.accepted.assistant_message] = one.reply
            of_messages.setdefault(one.accepted.user_message, one.reply)
    for kept in history.remembered:
        last = lives.last.get((kept.user, kept.conversation), 0)
        for message in (*kept.messages, *((kept.leaf,) if kept.leaf else ())):
            reply = of_messages.get(message)
            if reply and lives.of_replies.get(reply, last) != last:
                yield Violation("gone", reply, (), f"intake holds {message}", "nothing of a deleted conversation")


def word_violations(
    history: History, told: Mapping[ReplyId, Told], posts: Mapping[ReplyId, list[Entry]], lives: Lives
) -> Iterator[Violation]:
    """No word of what was deleted, and said nowhere else, is in the store's bytes, wherever in them."""
    living, dead = set[str](), dict[str, ReplyId]()
    for reply, entries in posts.items():
        last = lives.last.get((entries[0].event.user, entries[0].event.conversation), 0)
        texts = {entries[0].event.text, "".join(told[reply].texts) if reply in told else ""}
        if lives.of_replies[reply] == last:
            living |= texts
        else:
            dead |= dict.fromkeys(texts, reply)
    for text, reply in dead.items():
        telling = len(text) >= TELLING_CHARACTERS and not any(text in alive for alive in living)
        if telling and text.encode() in history.store_bytes:
            yield Violation("gone", reply, (), f"the store's file has {text!r}", "no word of what was deleted")


def title_violations(history: History, told: Mapping[ReplyId, Told], lives: Lives) -> Iterator[Violation]:
    """The last name since the conversation was last deleted; of one that was given before anything was said again
    nothing is promised.
    """
    for (user, conversation), title in history.titles.items():
        said_at = [
            lives.posted_at[one.reply]
            for one in told.values()
            if one.accepted and one.accepted.stored and one.reply in lives.posted_at
            if (one.accepted.user, one.accepted.conversation) == (user, conversation)
            if lives.of_replies[one.reply] == lives.last.get((user, conversation), 0)
        ]
        gone, names = _names(history, user, conversation)
        last = names[-1] if names else None
        sure = last and said_at and (not gone or min(said_at) < last[0])
        if sure and last and title != last[1]:
            yield Violation("title", None, (last[0],), (user, conversation, title), last[1])
        elif (not said_at and title is not None) or title in {name for _, name in gone} - {name for _, name in names}:
            yield Violation("title", None, (), (user, conversation, title), "none of what was deleted")


def _names(history: History, user: UserId, conversation: ConversationId) -> tuple[list[Name], list[Name]]:
    """Those before its last deletion, with an empty one for each, and those since."""
    gone, names = list[Name](), list[Name]()
    for entry in history.of(MESSAGES):
        match entry.event:
            case ConversationRenamed() as renamed if (renamed.user, renamed.conversation) == (user, conversation):
                names.append((entry.offset, renamed.title))
            case ConversationDeleted() as deleted if (deleted.user, deleted.conversation) == (user, conversation):
                gone += [*names, (entry.offset, "")]
                names = []
    return gone, names

"""The tree of each conversation, read a second time: what each question follows, and so what its prompt has to be.

A message follows the one that its user named, and without a name the answer to the message that was accepted before it,
since the conversation was last deleted. It shares no line with `streams/branches.py` and `streams/context.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from schemas.events import ROOT, MessagePosted, Turn, TurnSaved, unpack_ids
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from tests.checker.deletions import Lives
from tests.checker.history import Entry, History
from tests.checker.telling import Told
from tests.checker.violation import Violation
from topics.catalog import TURNS

Said: TypeAlias = tuple[str, tuple[int, ...]]
Life: TypeAlias = tuple[UserId, ConversationId, int | None]

# What of an exchange later prompts have, by how its answer ended; of one without an answer the question.
ENTERS = {"complete": ("user", "assistant"), "stopped": ("user", "assistant"), "failed": ("user",), "flagged": ()}


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a reply stands: its question, the message before that, and the conversation's own system prompt by then."""

    question: MessageId
    follows: MessageId | None
    system: str


@dataclass(frozen=True)
class Branches:
    of_replies: Mapping[ReplyId, Branch]
    saved: Mapping[MessageId, Turn]

    def turns(self, reply: ReplyId) -> list[Said]:
        """What has been said up to this reply, as prompts have it: the oldest first, its question last."""
        branch = self.of_replies[reply]
        found: list[Said] = []
        for exchange in _exchanges(self._before(branch.follows)):
            statuses = [turn.status for turn in exchange if turn.role == "assistant"]
            enters = ENTERS[statuses[-1]] if statuses else ("user",)
            found += [(turn.role, unpack_ids(turn.token_ids)) for turn in exchange if turn.role in enters]
        question = self.saved.get(branch.question)
        found = [said for said in found if said[0] == "user" or said[1]]
        return [*found, ("user", unpack_ids(question.token_ids))] if question else found

    def _before(self, message: MessageId | None) -> list[Turn]:
        path: list[Turn] = []
        while message is not None and message in self.saved and len(path) <= len(self.saved):
            path.append(self.saved[message])
            message = path[-1].parent
        return path[::-1]


def _exchanges(turns: Sequence[Turn]) -> list[list[Turn]]:
    found: list[list[Turn]] = []
    for turn in turns:
        found.append([turn]) if turn.role == "user" or not found else found[-1].append(turn)
    return found


def branches_of(
    history: History, told: Mapping[ReplyId, Told], posts: Mapping[ReplyId, list[Entry]], lives: Lives
) -> Branches:
    saved: dict[MessageId, Turn] = {}
    for entry in history.of(TURNS):
        if isinstance(entry.event, TurnSaved):
            saved.setdefault(entry.event.turn.message, entry.event.turn)
    talks: defaultdict[Life, list[Told]] = defaultdict(list)
    for one in told.values():
        if one.accepted and one.accepted.stored and one.reply in posts:
            life = one.accepted.user, one.accepted.conversation, lives.of_replies.get(one.reply)
            talks[life].append(one)
    found: dict[ReplyId, Branch] = {}
    for talk in talks.values():
        leaf, system = None, ""
        for one in sorted(talk, key=lambda each: each.first.at_ms if each.first else 0):
            assert one.accepted
            posted: MessagePosted = posts[one.reply][0].event
            system = system if posted.system is None else posted.system
            found[one.reply] = _branch(posted, one.accepted.user_message, leaf, system, saved)
            leaf = one.accepted.assistant_message
    return Branches(found, saved)


def _branch(
    posted: MessagePosted,
    own: MessageId,
    leaf: MessageId | None,
    system: str,
    saved: Mapping[MessageId, Turn],
) -> Branch:
    if not posted.text and posted.parent:
        return Branch(posted.parent, saved[posted.parent].parent if posted.parent in saved else None, system)
    return Branch(own, None if posted.parent == ROOT else posted.parent or leaf, system)


def branch_violations(told: Mapping[ReplyId, Told], branches: Branches) -> Iterator[Violation]:
    """Each message hangs where its user wanted it, and each answer on its question."""
    for reply, branch in branches.of_replies.items():
        accepted = told[reply].accepted
        assert accepted
        if accepted.user_message != branch.question:
            yield Violation("branch", reply, (), f"an answer to {accepted.user_message}", f"one to {branch.question}")
        for message, follows in ((branch.question, branch.follows), (accepted.assistant_message, branch.question)):
            turn = branches.saved.get(message)
            if turn and turn.parent != follows:
                yield Violation("branch", reply, (), f"{message} follows {turn.parent}", f"it follows {follows}")

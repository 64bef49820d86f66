"""The promises, each as a function from a History to its violations. `check` asks them all.

A rule trusts only the log as `telling.py` reads it; everything else - turns, usage, store, a client's bytes - has to
agree with that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from schemas import reply_records as r
from schemas.events import MessagePosted, TurnSaved, UsageRecorded, unpack_ids
from schemas.ids import ReplyId
from tests.checker.abandoned import abandonment_violations
from tests.checker.branches import Branches, branch_violations, branches_of
from tests.checker.deletions import Lives, lives_of
from tests.checker.fences import fence_violations
from tests.checker.gone import remembered_violations, title_violations, word_violations
from tests.checker.history import Asked, Entry, History
from tests.checker.prompts import prompt_violations
from tests.checker.quotas import quota_violations
from tests.checker.streams import stream_violations
from tests.checker.telling import Told, tell
from tests.checker.violation import Violation
from topics.catalog import DEAD_LETTERS, MESSAGES, REPLIES, TURNS, USAGE

STATUSES = {"finished": "complete", "stopped": "stopped", "flagged": "flagged", "shed": "failed", "failed": "failed"}


@dataclass(frozen=True)
class Case:
    """A history with what its log tells; `posts` by the candidate that each message carried."""

    history: History
    told: dict[ReplyId, Told]
    posts: dict[ReplyId, list[Entry]]
    lives: Lives
    branches: Branches

    @property
    def accepted(self) -> Iterator[tuple[Told, r.Accepted]]:
        return ((told, told.accepted) for told in self.told.values() if told.accepted)

    def asked(self, reply: ReplyId) -> Asked | None:
        posts = self.posts.get(reply)
        return asked(posts[0].event) if posts else None


Rule: TypeAlias = Callable[[Case], Iterator[Violation]]


def check(history: History) -> list[Violation]:
    """Every violation of every rule; empty when all promises were kept."""
    posts: defaultdict[ReplyId, list[Entry]] = defaultdict(list)
    for entry in history.of(MESSAGES):
        if isinstance(entry.event, MessagePosted):
            posts[entry.event.reply].append(entry)
    told, lives = tell(history.of(REPLIES)), lives_of(history)
    case = Case(history, told, dict(posts), lives, branches_of(history, told, posts, lives))
    return [violation for rule in RULES for violation in rule(case)]


def asked(posted: MessagePosted) -> Asked:
    return posted.user, posted.conversation, posted.client_key


def every_accepted_reply_ends(case: Case) -> Iterator[Violation]:
    most = case.history.grace_ms
    for told, accepted in case.accepted:
        if told.end is None:
            yield Violation("end", told.reply, _at(told.first), "no end", "one valid end")
        elif told.first and (late := told.end.at_ms - max(accepted.deadline_ms, told.first.at_ms)) > most:
            yield Violation("deadline", told.reply, _at(told.end), f"an end {late} ms after it", "an end in time")


def every_message_is_answered_once(case: Case) -> Iterator[Violation]:
    """In the log; a repeat by the reply that its key has. With its conversation a key is forgotten."""
    winners: dict[tuple[Asked, int], ReplyId] = {}
    lives = case.lives.of_replies
    for reply, entries in case.posts.items():
        told = case.told.get(reply)
        if told is None or told.first is None:
            yield Violation("answer", reply, _at(*entries), "no answer in the log", "Accepted, Rejected or Redirected")
        elif told.accepted and (winner := winners.setdefault((asked(entries[0].event), lives[reply]), reply)) != reply:
            yield Violation("one reply per key", reply, _at(told.first), "accepted", f"a redirection to {winner}")
    for reply, entries in case.posts.items():
        told = case.told.get(reply)
        if told and told.first and isinstance(told.first.event, r.Redirected):
            winner_of_key = winners.get((asked(entries[0].event), lives[reply]))
            if told.first.event.to != winner_of_key:
                yield Violation("redirection", reply, _at(told.first), told.first.event.to, winner_of_key)


def texts_are_those_of_an_undisturbed_run(case: Case) -> Iterator[Violation]:
    for told, _ in case.accepted:
        key = case.asked(told.reply)
        whole = case.history.undisturbed.get(key) if key else None
        if whole is None:
            continue
        ends_alike = told.state != "finished" or (told.reason, len(told.ids)) == (whole.reason, len(whole.ids))
        same_ids, same_texts = told.ids == whole.ids[: len(told.ids)], told.texts == whole.texts[: len(told.texts)]
        if not (ends_alike and same_ids and same_texts):
            found, expected = (told.state, told.reason, told.texts), ("finished", whole.reason, whole.texts)
            yield Violation("undisturbed", told.reply, _at(told.end), found, expected)


def one_usage_record_says_what_the_log_says(case: Case) -> Iterator[Violation]:
    recorded: defaultdict[ReplyId, list[Entry]] = defaultdict(list)
    for entry in case.history.of(USAGE):
        if isinstance(entry.event, UsageRecorded):
            recorded[entry.event.reply].append(entry)
    for told, accepted in case.accepted:
        entries = recorded.pop(told.reply, [])
        if len(entries) != 1:
            yield Violation("usage", told.reply, _at(*entries), f"{len(entries)} usage records", "one")
            continue
        usage: UsageRecorded = entries[0].event
        found = usage.user, usage.state, usage.reason, usage.prompt_tokens, usage.completion_tokens, usage.attempts
        counted = accepted.prompt_tokens, len(told.ids), told.attempt
        expected = accepted.user, told.state, told.reason, *counted
        if found != expected or not 0 <= usage.cached_tokens <= usage.prompt_tokens:
            yield Violation("usage", told.reply, _at(*entries), (*found, usage.cached_tokens), expected)
    for reply, entries in recorded.items():
        yield Violation("usage", reply, _at(*entries), "usage of no accepted reply", "none")


def turns_are_what_the_log_says(case: Case) -> Iterator[Violation]:
    saved: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in case.history.of(TURNS):
        if isinstance(entry.event, TurnSaved):
            saved[entry.event.turn.message].append(entry)
    for told, accepted in case.accepted:
        if not accepted.stored:
            continue
        posts = case.posts.get(told.reply)
        if posts and posts[0].event.text:
            expected_user = ("user", posts[0].event.text, "complete", told.reply)
            yield from _turn(told, saved[accepted.user_message], expected_user, None)
        status = STATUSES.get(told.state, "open")
        expected = ("assistant", "".join(told.texts), status, told.reply)
        yield from _turn(told, saved[accepted.assistant_message], expected, told.ids)


def _turn(
    told: Told, entries: list[Entry], expected: tuple[Any, ...], ids: tuple[int, ...] | None
) -> Iterator[Violation]:
    if not entries:
        yield Violation("turn", told.reply, (), "no turn", expected)
    for entry in entries:
        turn = entry.event.turn
        found: tuple[Any, ...] = (turn.role, turn.text, turn.status, entry.event.reply)
        if found != expected or (ids is not None and unpack_ids(turn.token_ids) != ids):
            yield Violation("turn", told.reply, _at(entry), found, expected)


def the_store_holds_the_turns(case: Case) -> Iterator[Violation]:
    """Each conversation, since it was last deleted: all its branches in the order in which they were posted, each
    question before its answer, further answers to it where they were asked for.
    """
    lives = case.lives
    for (user, conversation), found in case.history.stored.items():
        of_it = [(t, a) for t, a in case.accepted if (a.user, a.conversation, a.stored) == (user, conversation, True)]
        last = lives.last.get((user, conversation), 0)
        of_it = [(t, a) for t, a in of_it if lives.of_replies.get(t.reply, last) == last]
        expected: list[tuple[str, str, str]] = []
        for told, _ in sorted(of_it, key=lambda pair: (pair[1].posted_ms, pair[0].reply)):
            posts = case.posts.get(told.reply)
            question = posts[0].event.text if posts else ""
            expected += [("user", question, "complete")] if question else []
            expected.append(("assistant", "".join(told.texts), STATUSES.get(told.state, "open")))
        if list(found) != expected:
            yield Violation("store", None, (), (user, conversation, found), expected)


def clients_are_sent_the_log(case: Case) -> Iterator[Violation]:
    return stream_violations(case.history.streams, case.told)


def replicas_are_asked_with_the_turns_before(case: Case) -> Iterator[Violation]:
    return prompt_violations(case.history, case.told, case.branches)


def messages_hang_where_their_users_wanted_them(case: Case) -> Iterator[Violation]:
    return branch_violations(case.told, case.branches)


def what_was_deleted_is_gone(case: Case) -> Iterator[Violation]:
    yield from remembered_violations(case.history, case.told, case.lives)
    yield from word_violations(case.history, case.told, case.posts, case.lives)
    yield from title_violations(case.history, case.told, case.lives)


def quotas_are_what_the_log_says(case: Case) -> Iterator[Violation]:
    return quota_violations(case.history, case.told, case.posts)


def nobody_is_given_up_who_is_there(case: Case) -> Iterator[Violation]:
    return abandonment_violations(case.history, case.told)


def no_living_replica_is_fenced(case: Case) -> Iterator[Violation]:
    return fence_violations(case.history, case.told)


def every_request_is_answered_once(case: Case) -> Iterator[Violation]:
    for request in case.history.requests:
        answers = len(request.answers)
        if answers > 1 or (answers == 0) != request.broken:
            expected = "no answer on a broken connection" if request.broken else "one answer"
            yield Violation("request", None, (), (request.client, request.what, request.answers), expected)


def nothing_is_left(case: Case) -> Iterator[Violation]:
    for what, count in sorted(case.history.left.items()):
        if count:
            yield Violation("left", None, (), f"{count} {what}", "none")


def nothing_was_put_aside(case: Case) -> Iterator[Violation]:
    for entry in case.history.of(DEAD_LETTERS):
        yield Violation("dead letter", None, _at(entry), entry.event, "none")


RULES: tuple[Rule, ...] = (
    every_accepted_reply_ends,
    every_message_is_answered_once,
    texts_are_those_of_an_undisturbed_run,
    one_usage_record_says_what_the_log_says,
    turns_are_what_the_log_says,
    the_store_holds_the_turns,
    clients_are_sent_the_log,
    replicas_are_asked_with_the_turns_before,
    messages_hang_where_their_users_wanted_them,
    what_was_deleted_is_gone,
    quotas_are_what_the_log_says,
    nobody_is_given_up_who_is_there,
    no_living_replica_is_fenced,
    every_request_is_answered_once,
    nothing_is_left,
    nothing_was_put_aside,
)


def _at(*entries: Entry | None) -> tuple[int, ...]:
    return tuple(entry.offset for entry in entries if entry)

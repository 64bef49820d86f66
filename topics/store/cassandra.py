"""The conversation store on a Cassandra cluster: history writes it, intake and the edges read it.

In: records of `turns`. Out: see `topics/store/contract.py`. A turn is kept as its Avro record beside what it is looked
up or ordered by. A save is not one transaction: whoever is told Unavailable saves the same again, and each of its
writes may be repeated; a line of the list is written last, as of the moment its conversation began to be counted, so a
writer that was held up in between cannot put an older one over a newer.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Iterator

from cassandra.query import UNSET_VALUE

from schemas.codec import Codec, CodecError
from schemas.events import ClientKey, TurnSaved
from schemas.ids import ConversationId, MessageId, ReplyId, UserId
from topics.errors import Unavailable
from topics.store import cassandra_schema as cql
from topics.store.cassandra_changes import (
    Call,
    Changes,
    Key,
    Line,
    Microseconds,
    changes_of,
    days_of,
    in_batches,
    in_order,
)
from topics.store.cassandra_session import CassandraSession
from topics.store.config import StoreConfig
from topics.store.contract import Conversation, Cursor, History, SavedAt, posted_ms, title_of

SCHEMA_VERSION = len(cql.STEPS)
DAY_MS = 86_400_000
LONGEST_S = 630_720_000  # that Cassandra lets a row live

_MOST = 2**63 - 1
_NEWEST = Cursor(_MOST, ConversationId(""))


class CassandraStore:
    """Opens no connection before it is asked something. Raises Unavailable in every method."""

    def __init__(self, config: StoreConfig, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._keep_ms, self._now_ms = config.keep_days * DAY_MS, now_ms
        self._session = CassandraSession(config, check_version)
        self._codec = Codec()
        self._clock = Microseconds()

    def save(self, records: Iterable[SavedAt]) -> None:
        changes = changes_of(records)
        self._look_up(changes)
        self._delete({key: change for key, change in changes.items() if change.deleted_ms >= 0})
        self._session.write(self._writes(changes))
        self._summarize(changes)

    def identity(self) -> str:
        while (found := self._session.first(cql.IDENTITY)) is None:
            self._session.each([(cql.SET_IDENTITY, (1 + secrets.randbelow(2**31 - 1),))])
        return str(found[0])

    def history(
        self,
        user: UserId,
        conversation: ConversationId,
        limit_tokens: int,
        keys_since_ms: int = 0,
        leaf: MessageId | None = None,
    ) -> History:
        found = leaf is None or self.has_message(user, conversation, leaf)
        turns = self._branch(user, conversation, _MOST, limit_tokens, leaf)
        keyed = self._session.rows(cql.KEYS, user, conversation, keys_since_ms)
        keys = tuple(ClientKey(key, body_hash or "", ReplyId(reply)) for key, body_hash, reply in keyed if key)
        return History(tuple(saved.turn for saved in turns), keys, self.system(user, conversation), found)

    def path(
        self, user: UserId, conversation: ConversationId, limit: int, leaf: MessageId | None = None
    ) -> tuple[TurnSaved, ...]:
        return self._branch(user, conversation, limit, _MOST, leaf)

    def tip(self, user: UserId, conversation: ConversationId, through: MessageId) -> MessageId | None:
        place = self._session.first(cql.POSTED, user, conversation, through)
        if place is None:
            return None
        newest: dict[str, str] = {}
        for message, parent in self._session.rows(cql.TREE_SINCE, user, conversation, place[0], page=1000):
            newest.setdefault(parent, message)
        tip: str = through
        while child := newest.pop(tip, None):  # each once: parents may go round
            tip = child
        return MessageId(tip)

    def children(
        self, user: UserId, conversation: ConversationId, parents: Iterable[MessageId | None]
    ) -> dict[MessageId | None, tuple[MessageId, ...]]:
        asked = list(dict.fromkeys(parents))
        found = self._session.each([(cql.CHILDREN, (user, conversation, parent or "")) for parent in asked])
        return {parent: in_order(rows) for parent, rows in zip(asked, found, strict=True)}

    def system(self, user: UserId, conversation: ConversationId) -> str:
        found = self._session.first(cql.SYSTEM, user, conversation)
        return found[0] if found else ""

    def conversations(self, user: UserId, limit: int, before: Cursor | None = None) -> tuple[Conversation, ...]:
        found: list[Conversation] = []
        cursor = before or _NEWEST
        while len(found) < limit:
            rows = list(self._session.rows(cql.RECENT, user, *cursor, limit))
            lines = {line.conversation: line for line in self._lines(user, [name for _, name in rows])}
            for updated_ms, name in rows:
                line = lines.get(name)
                if line and line.messages and line.updated_ms == updated_ms:
                    found.append(line.listed())
            if len(rows) < limit:
                break
            cursor = Cursor(rows[-1][0], rows[-1][1])
        return tuple(found[:limit])

    def conversation(self, user: UserId, conversation: ConversationId) -> Conversation | None:
        line = self._line(user, conversation)
        return line.listed() if line and line.messages else None

    def deleted_ms(self, user: UserId, conversation: ConversationId) -> int:
        line = self._line(user, conversation)
        return max(line.deleted_ms, 0) if line else 0

    def messages(
        self, user: UserId, conversation: ConversationId, limit: int, before: MessageId | None = None
    ) -> tuple[TurnSaved, ...]:
        if before is None:
            rows = self._session.rows(cql.NEWEST, user, conversation, page=limit + 1)
        else:
            place = self._session.first(cql.POSTED, user, conversation, before)
            if place is None:
                return ()
            rows = self._session.rows(cql.NEWEST_FROM, user, conversation, place[0], page=limit + 8)
            rows = itertools.islice(itertools.dropwhile(lambda row: row[0] != before, rows), 1, None)
        newest = [self._decoded(record) for _, _, record in itertools.islice(rows, limit)]
        return tuple(reversed(newest))

    def has_message(self, user: UserId, conversation: ConversationId, message: MessageId) -> bool:
        return self._session.first(cql.POSTED, user, conversation, message) is not None

    def turns_of_reply(self, user: UserId, reply: ReplyId) -> tuple[TurnSaved, ...]:
        found: list[TurnSaved] = []
        for conversation, posted in list(self._session.rows(cql.CONVERSATION_OF_REPLY, user, days_of(reply), reply)):
            rows = self._session.rows(cql.OF_REPLY, user, conversation, posted, reply)
            found += [self._decoded(record) for (record,) in rows]
        return tuple(found)

    def reply_for_key(self, user: UserId, conversation: ConversationId, client_key: str) -> ClientKey | None:
        rows = list(self._session.rows(cql.KEY, user, conversation, client_key))
        if not rows:
            return None
        key, body_hash, reply, _ = min(rows, key=lambda row: (row[3], row[2]))
        return ClientKey(key, body_hash or "", ReplyId(reply))

    def close(self) -> None:
        self._session.close()

    def _branch(
        self, user: UserId, conversation: ConversationId, most: int, tokens: int, leaf: MessageId | None
    ) -> tuple[TurnSaved, ...]:
        """One pass from the newest on: a parent was posted before what follows it."""
        place = (_MOST,) if leaf is None else self._session.first(cql.POSTED, user, conversation, leaf)
        if place is None:
            return ()
        newest_first: list[TurnSaved] = []
        wanted: str | None = leaf
        rows = self._session.rows(cql.BRANCH, user, conversation, place[0], page=50)
        for message, parent, of_turn, record in rows:
            if wanted is not None and message != wanted:
                continue
            tokens -= of_turn
            if tokens < 0 or len(newest_first) == most:
                break
            newest_first.append(self._decoded(record))
            wanted = parent
            if not wanted:
                break
        return tuple(reversed(newest_first))

    def _decoded(self, record: bytes) -> TurnSaved:
        """Raises Unavailable for what this version cannot read."""
        try:
            turn: TurnSaved = self._codec.decode(record)
        except CodecError as error:
            raise Unavailable(f"a turn in the store cannot be read: {error}") from error
        return turn

    def _line(self, user: UserId, conversation: ConversationId) -> Line | None:
        row = self._session.first(cql.LINE, user, conversation)
        return Line.of(row) if row else None

    def _lines(self, user: UserId, names: list[str]) -> Iterator[Line]:
        return map(Line.of, self._session.rows(cql.LINES, user, names)) if names else iter(())

    def _look_up(self, changes: dict[Key, Changes]) -> None:
        names: dict[UserId, list[str]] = {}
        for user, conversation in changes:
            names.setdefault(user, []).append(conversation)
        for user, rows in zip(names, self._session.each([(cql.LINES, of) for of in names.items()]), strict=True):
            for line in map(Line.of, rows):
                changes[user, line.conversation].known = line

    def _delete(self, changes: dict[Key, Changes]) -> None:
        until = [(key, change.deleted_ms) for key, change in changes.items()]
        gone = self._session.each([(cql.REPLIES_UNTIL, (*key, at_ms)) for key, at_ms in until])
        replies = sorted({(key[0], reply) for (key, _), rows in zip(until, gone, strict=True) for (reply,) in rows})
        self._session.write([[(cql.DELETED_AT, (at_ms, at_ms, *key))] for key, at_ms in until])
        self._session.write([[(statement, (*key, at_ms)) for statement in cql.DELETE] for key, at_ms in until])
        self._session.write([[(cql.DELETE_REPLY, (user, days_of(reply), reply))] for user, reply in replies])

    def _writes(self, changes: dict[Key, Changes]) -> Iterator[list[Call]]:
        """What was said and named, each conversation's together, and where each reply is."""
        replies: dict[tuple[str, str], dict[str, Call]] = {}
        for key, change in changes.items():
            calls: list[Call] = []
            for saved, offset in change.turns:
                at_ms, seconds = posted_ms(saved), self._seconds_left(posted_ms(saved))
                if at_ms <= change.gone_ms or seconds is None:
                    continue
                calls.append((cql.SAVE, (*self._row(saved), offset, seconds)))
                place = (saved.user, days_of(saved.reply))
                values = (*place, saved.reply, saved.conversation, at_ms, offset, seconds)
                replies.setdefault(place, {})[saved.reply] = (cql.SAVE_REPLY, values)
                if saved.system is not None:
                    calls.append((cql.SAVE_SYSTEM, (*key, at_ms, saved.reply, saved.system, offset, seconds)))
            for renamed, offset in change.names:
                if renamed.at_ms > change.gone_ms:
                    seconds = self._seconds_left(self._now_ms()) or 0
                    calls.append((cql.RENAME, (*key, renamed.at_ms, offset, renamed.title, offset, seconds)))
            yield from in_batches(calls)
        for of_days in replies.values():
            yield from in_batches(list(of_days.values()))

    def _row(self, saved: TurnSaved) -> tuple[object, ...]:
        turn = saved.turn
        place = (saved.user, saved.conversation, posted_ms(saved), saved.reply, turn.role, turn.message)
        tokens, title = len(turn.token_ids) // 4, title_of(turn.text)
        keyed = (saved.client_key or UNSET_VALUE, saved.body_hash or UNSET_VALUE)
        return (*place, saved.created_ms, tokens, title, *keyed, turn.parent or "", self._codec.encode(saved))

    def _seconds_left(self, at_ms: int) -> int | None:
        """How long what was posted then is still kept; 0 for ever, None no longer."""
        if not self._keep_ms:
            return 0
        left = -(-(at_ms + self._keep_ms - self._now_ms()) // 1000)
        return min(left, LONGEST_S) if left > 0 else None

    def _summarize(self, changes: dict[Key, Changes]) -> None:
        """Counts the conversations anew and writes their lines and places, last: who is cut off does it all again."""
        at_us = self._clock.now()
        asked = (cql.SUM, cql.BEGINS, cql.NAME)
        answers = iter(self._session.each([(statement, key) for key in changes for statement in asked]))
        of_users: dict[UserId, list[Call]] = {}
        names: list[list[Call]] = []
        for key, change in changes.items():
            [[count, created_ms, updated_ms]], begins, name = next(answers), next(answers), next(answers)
            title = (name or begins or [("",)])[0][0] if count else ""
            before = change.known.updated_ms if change.known and change.known.messages else None
            seconds = self._seconds_left(updated_ms) or 0 if count else 0
            calls = of_users.setdefault(key[0], [])
            if before is not None and before != updated_ms:
                calls.append((cql.REMOVE_RECENT, (at_us, key[0], before, key[1])))
            if count:
                calls.append((cql.ADD_RECENT, (key[0], updated_ms, key[1], at_us, seconds)))
            if count and seconds and name:  # it is kept as long as its newest message
                [[_, renamed_ms, offset]] = name
                names.append([(cql.RENAME, (*key, renamed_ms, offset, title, offset, seconds))])
            line = (created_ms or 0, updated_ms or 0, count, title)
            calls.append((cql.SET_LINE, (at_us, seconds, *line, *key)))
        self._session.write(itertools.chain(names, *map(in_batches, of_users.values())))


def version_of(session: CassandraSession) -> int:
    """The keyspace's schema version. Raises Unavailable when it has none."""
    found = session.first(cql.VERSION)
    return found[0] if found else 0


def check_version(session: CassandraSession) -> None:
    """Raises Unavailable unless the tables are those that this version knows."""
    version = version_of(session)
    if version != SCHEMA_VERSION:
        advice = "run `laneway store migrate`" if version < SCHEMA_VERSION else "run a newer Laneway"
        raise Unavailable(f"the store has schema version {version}, this Laneway works with {SCHEMA_VERSION}: {advice}")


def migrate(config: StoreConfig, replication: str) -> tuple[int, int]:
    """Makes the keyspace, if need be, and takes its tables to this version; from which, to which version."""
    _, keyspace = config.cluster()
    system = CassandraSession(config, lambda _: None, keyspace=False)
    try:
        system.run([f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}"])
    finally:
        system.close()
    session = CassandraSession(config, lambda _: None)
    try:
        session.run([cql.VERSIONS])
        version = version_of(session)
        for number, step in enumerate(cql.STEPS[version:], version + 1):
            session.run(step)
            session.each([(cql.SET_VERSION, (number,))])
        return version, max(version, SCHEMA_VERSION)
    finally:
        session.close()

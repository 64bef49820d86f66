"""The tables of the Cassandra store, how they came about, and every statement on them.

A partition of `turns` is one conversation, newest first. A record is written at its offset as Cassandra's timestamp, so
of two versions the one of the higher offset stays, whatever their order; a deletion is a tombstone over all that was
posted up to its time, and a conversation's last deletion is written at that time, so the latest stays. The lines of
`conversations` are what the turns come to, counted when something was saved; `recent` orders them, and what it says
counts only where the line says the same. Both share their partition key, as do `turns`, `names` and `systems`, so that
what a save changes of one partition is one write. A partition of `replies` has those of a user of three days.
"""

from __future__ import annotations

_TURNS = """
CREATE TABLE IF NOT EXISTS turns (
    user text, conversation text, posted_ms bigint, reply text, role text, message text,
    created_ms bigint, tokens int, title text, client_key text, body_hash text, parent text, record blob,
    PRIMARY KEY ((user, conversation), posted_ms, reply, role, message)
) WITH CLUSTERING ORDER BY (posted_ms DESC, reply DESC, role ASC, message DESC)
  AND compaction = {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L4'}
  AND compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 16}
"""
_BY_KEY = "CREATE INDEX IF NOT EXISTS turns_by_key ON turns (client_key) USING 'sai'"
_BY_MESSAGE = "CREATE INDEX IF NOT EXISTS turns_by_message ON turns (message) USING 'sai'"
_BY_PARENT = "CREATE INDEX IF NOT EXISTS turns_by_parent ON turns (parent) USING 'sai'"
_REPLIES = """
CREATE TABLE IF NOT EXISTS replies (
    user text, days text, reply text, conversation text, posted_ms bigint,
    PRIMARY KEY ((user, days), reply, conversation)
)
"""
_NAMES = """
CREATE TABLE IF NOT EXISTS names (
    user text, conversation text, renamed_ms bigint, offset bigint, title text,
    PRIMARY KEY ((user, conversation), renamed_ms, offset)
) WITH CLUSTERING ORDER BY (renamed_ms DESC, offset DESC)
"""
_SYSTEMS = """
CREATE TABLE IF NOT EXISTS systems (
    user text, conversation text, posted_ms bigint, reply text, system text,
    PRIMARY KEY ((user, conversation), posted_ms, reply)
) WITH CLUSTERING ORDER BY (posted_ms DESC, reply DESC)
"""
_CONVERSATIONS = """
CREATE TABLE IF NOT EXISTS conversations (
    user text, conversation text, created_ms bigint, updated_ms bigint, messages int, title text, deleted_ms bigint,
    PRIMARY KEY ((user), conversation)
)
"""
# A line that came back after a lost tombstone is passed over by its readers, so tombstones need not be kept for long.
_RECENT = """
CREATE TABLE IF NOT EXISTS recent (
    user text, updated_ms bigint, conversation text, PRIMARY KEY ((user), updated_ms, conversation)
) WITH CLUSTERING ORDER BY (updated_ms DESC, conversation DESC) AND gc_grace_seconds = 10800
"""

# The n-th takes a keyspace from schema version n to n + 1; each statement may be run again.
STEPS: tuple[tuple[str, ...], ...] = (
    (_TURNS, _BY_KEY, _BY_MESSAGE, _BY_PARENT, _REPLIES, _NAMES, _SYSTEMS, _CONVERSATIONS, _RECENT),
)

VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (id int PRIMARY KEY, version int)"
VERSION = "SELECT version FROM schema_version WHERE id = 0"
SET_VERSION = "INSERT INTO schema_version (id, version) VALUES (0, ?)"

# What is saved, at its offset; `0` seconds to live are for ever.
SAVE = """
INSERT INTO turns (user, conversation, posted_ms, reply, role, message,
                   created_ms, tokens, title, client_key, body_hash, parent, record)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?
"""
SAVE_REPLY = """
INSERT INTO replies (user, days, reply, conversation, posted_ms) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?
"""
SAVE_SYSTEM = """
INSERT INTO systems (user, conversation, posted_ms, reply, system) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?
"""
RENAME = """
INSERT INTO names (user, conversation, renamed_ms, offset, title) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?
"""

# What is deleted, now: later than every offset.
DELETED_AT = "UPDATE conversations USING TIMESTAMP ? SET deleted_ms = ? WHERE user = ? AND conversation = ?"
DELETE = (
    "DELETE FROM turns WHERE user = ? AND conversation = ? AND posted_ms <= ?",
    "DELETE FROM names WHERE user = ? AND conversation = ? AND renamed_ms <= ?",
    "DELETE FROM systems WHERE user = ? AND conversation = ? AND posted_ms <= ?",
)
REPLIES_UNTIL = "SELECT reply FROM turns WHERE user = ? AND conversation = ? AND posted_ms <= ?"
DELETE_REPLY = "DELETE FROM replies WHERE user = ? AND days = ? AND reply = ?"

# What a conversation comes to, and its line, as of the microsecond in which that was begun to be read.
SUM = "SELECT count(*), min(created_ms), max(created_ms) FROM turns WHERE user = ? AND conversation = ?"
BEGINS = """
SELECT title FROM turns WHERE user = ? AND conversation = ? ORDER BY posted_ms ASC, reply ASC, role DESC, message ASC
LIMIT 1
"""
NAME = "SELECT title, renamed_ms, offset FROM names WHERE user = ? AND conversation = ? LIMIT 1"
SET_LINE = """
UPDATE conversations USING TIMESTAMP ? AND TTL ? SET created_ms = ?, updated_ms = ?, messages = ?, title = ?
WHERE user = ? AND conversation = ?
"""
ADD_RECENT = "INSERT INTO recent (user, updated_ms, conversation) VALUES (?, ?, ?) USING TIMESTAMP ? AND TTL ?"
REMOVE_RECENT = "DELETE FROM recent USING TIMESTAMP ? WHERE user = ? AND updated_ms = ? AND conversation = ?"

# What is asked.
_LINE = "SELECT conversation, created_ms, updated_ms, messages, title, deleted_ms FROM conversations WHERE user = ?"
LINE = f"{_LINE} AND conversation = ?"
LINES = f"{_LINE} AND conversation IN ?"
RECENT = """
SELECT updated_ms, conversation FROM recent WHERE user = ? AND (updated_ms, conversation) < (?, ?) LIMIT ?
"""
NEWEST = "SELECT message, tokens, record FROM turns WHERE user = ? AND conversation = ?"
NEWEST_FROM = f"{NEWEST} AND posted_ms <= ?"
BRANCH = "SELECT message, parent, tokens, record FROM turns WHERE user = ? AND conversation = ? AND posted_ms <= ?"
TREE_SINCE = "SELECT message, parent FROM turns WHERE user = ? AND conversation = ? AND posted_ms >= ?"
CHILDREN = """
SELECT posted_ms, reply, role, message FROM turns WHERE user = ? AND conversation = ? AND parent = ?
"""
SYSTEM = "SELECT system FROM systems WHERE user = ? AND conversation = ? LIMIT 1"
POSTED = "SELECT posted_ms FROM turns WHERE user = ? AND conversation = ? AND message = ?"
KEYS = """
SELECT client_key, body_hash, reply FROM turns WHERE user = ? AND conversation = ? AND posted_ms >= ?
ORDER BY posted_ms ASC, reply ASC, role DESC, message ASC
"""
KEY = """
SELECT client_key, body_hash, reply, posted_ms FROM turns WHERE user = ? AND conversation = ? AND client_key = ?
"""
CONVERSATION_OF_REPLY = "SELECT conversation, posted_ms FROM replies WHERE user = ? AND days = ? AND reply = ?"
OF_REPLY = """
SELECT record FROM turns WHERE user = ? AND conversation = ? AND posted_ms = ? AND reply = ?
ORDER BY posted_ms ASC, reply ASC, role DESC, message ASC
"""
IDENTITY = "SELECT version FROM schema_version WHERE id = 1"  # beside the version, in a row of its own
SET_IDENTITY = "INSERT INTO schema_version (id, version) VALUES (1, ?) IF NOT EXISTS"

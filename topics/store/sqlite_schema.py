"""The embedded store's tables and every statement on them.

`turns` holds what was said, `conversations` a line for each conversation: what its turns come to, its name, and when it
was last deleted. The line outlives a deletion, since turns of the time before may come late or again.
`tests/unit/topics/test_sqlite_store.py` looks at the plan of each statement: none reads a whole table.
"""

from __future__ import annotations

_TURNS = """
CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    user TEXT NOT NULL,
    conversation TEXT NOT NULL,
    message TEXT NOT NULL,
    reply TEXT NOT NULL,
    role TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    newest_offset INTEGER NOT NULL,
    client_key TEXT,
    title TEXT NOT NULL,
    record BLOB NOT NULL,
    UNIQUE (user, conversation, message)
) STRICT;
CREATE INDEX turns_in_order ON turns (user, conversation, reply, role, first_offset, message, tokens, created_ms);
CREATE INDEX turns_by_key ON turns (user, conversation, client_key, first_offset) WHERE client_key IS NOT NULL;
CREATE INDEX turns_by_reply ON turns (user, reply);
"""

_CONVERSATIONS = """
ALTER TABLE turns ADD COLUMN posted_ms INTEGER NOT NULL DEFAULT 0;
UPDATE turns SET posted_ms = created_ms, title = title_of(title);
CREATE TABLE conversations (
    user TEXT NOT NULL,
    conversation TEXT NOT NULL,
    messages INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL DEFAULT 0,
    updated_ms INTEGER NOT NULL DEFAULT 0,
    begins TEXT NOT NULL DEFAULT '',
    title TEXT,
    renamed_ms INTEGER,
    renamed_offset INTEGER,
    deleted_ms INTEGER,
    PRIMARY KEY (user, conversation)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversations_newest ON conversations (user, updated_ms, conversation) WHERE messages > 0;
INSERT INTO conversations (user, conversation, messages, created_ms, updated_ms, begins)
SELECT user, conversation, count(*), min(created_ms), max(created_ms),
       (SELECT title FROM turns AS t WHERE t.user = turns.user AND t.conversation = turns.conversation
        ORDER BY role <> 'user', first_offset LIMIT 1)
FROM turns GROUP BY user, conversation;
"""

# Ordered by what a turn says of itself, so a page is read without reading the conversation.
_BY_POST = """
DROP INDEX turns_in_order;
DROP INDEX turns_by_key;
ALTER TABLE turns DROP COLUMN first_offset;
CREATE INDEX turns_newest ON turns (
    user, conversation, posted_ms DESC, reply DESC, role, message DESC, tokens, created_ms);
CREATE INDEX turns_by_key ON turns (user, conversation, client_key, posted_ms, reply) WHERE client_key IS NOT NULL;
CREATE INDEX turns_by_age ON turns (posted_ms);
"""

_BRANCHES = """
ALTER TABLE turns ADD COLUMN parent TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN body_hash TEXT;
ALTER TABLE turns ADD COLUMN system TEXT;
UPDATE turns SET parent = parent_of(record), body_hash = body_hash_of(record);
CREATE INDEX turns_by_parent ON turns (
    user, conversation, parent, posted_ms DESC, reply DESC, role, message DESC);
CREATE INDEX turns_with_system ON turns (user, conversation, posted_ms, reply) WHERE system IS NOT NULL;
"""

# The n-th takes a file from schema version n to n + 1.
STEPS = (_TURNS, _CONVERSATIONS, _BY_POST, _BRANCHES)

# A branch is followed that far, since nothing but good manners keeps parents from going round.
LONGEST_BRANCH = 50_000

SAVE = """
INSERT INTO turns (user, conversation, message, reply, role, created_ms, tokens, newest_offset,
                   client_key, title, record, posted_ms, parent, body_hash, system)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15
WHERE ?12 > coalesce((SELECT deleted_ms FROM conversations WHERE user = ?1 AND conversation = ?2), -1)
ON CONFLICT (user, conversation, message) DO UPDATE SET
    reply = excluded.reply, role = excluded.role, created_ms = excluded.created_ms, tokens = excluded.tokens,
    newest_offset = excluded.newest_offset, client_key = excluded.client_key, title = excluded.title,
    record = excluded.record, posted_ms = excluded.posted_ms, parent = excluded.parent,
    body_hash = excluded.body_hash, system = excluded.system
WHERE excluded.newest_offset > turns.newest_offset
"""

# The conversations that what is too old is in, some at a time.
AGED = "SELECT user, conversation FROM turns INDEXED BY turns_by_age WHERE posted_ms <= ? LIMIT 1000"
DELETE_AGED = "DELETE FROM turns WHERE user = ? AND conversation = ? AND posted_ms <= ?"

# The name that a conversation had which is too old as a whole.
FORGET_AGED = """
UPDATE conversations SET title = NULL, renamed_ms = NULL, renamed_offset = NULL
WHERE user = ? AND conversation = ? AND renamed_ms <= ? AND messages = 0
"""

RENAME = """
INSERT INTO conversations (user, conversation, title, renamed_ms, renamed_offset) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (user, conversation) DO UPDATE SET
    title = excluded.title, renamed_ms = excluded.renamed_ms, renamed_offset = excluded.renamed_offset
WHERE excluded.renamed_ms > coalesce(deleted_ms, -1)
  AND (excluded.renamed_ms, excluded.renamed_offset) > (coalesce(renamed_ms, -1), coalesce(renamed_offset, -1))
"""

# In this order: when, its name, its turns.
DELETE = (
    """
    INSERT INTO conversations (user, conversation, deleted_ms) VALUES (?1, ?2, ?3)
    ON CONFLICT (user, conversation) DO UPDATE SET deleted_ms = max(coalesce(deleted_ms, -1), excluded.deleted_ms)
    """,
    """
    UPDATE conversations SET title = NULL, renamed_ms = NULL, renamed_offset = NULL
    WHERE user = ?1 AND conversation = ?2 AND renamed_ms <= ?3
    """,
    "DELETE FROM turns WHERE user = ?1 AND conversation = ?2 AND posted_ms <= ?3",
)

SUMMARIZE = """
INSERT INTO conversations (user, conversation, messages, created_ms, updated_ms, begins)
SELECT ?1, ?2, count(*), coalesce(min(created_ms), 0), coalesce(max(created_ms), 0), coalesce((
    SELECT title FROM turns WHERE user = ?1 AND conversation = ?2
    ORDER BY posted_ms, reply, role DESC, message LIMIT 1), '')
FROM turns WHERE user = ?1 AND conversation = ?2
ON CONFLICT (user, conversation) DO UPDATE SET
    messages = excluded.messages, created_ms = excluded.created_ms, updated_ms = excluded.updated_ms,
    begins = excluded.begins
"""

_ORDER = "ORDER BY posted_ms DESC, reply DESC, role, message DESC"

NEWEST = f"SELECT id, message, tokens FROM turns WHERE user = ? AND conversation = ? {_ORDER}"

NEWEST_FROM = f"SELECT id, message, tokens FROM turns WHERE user = ? AND conversation = ? AND posted_ms <= ? {_ORDER}"

_LINE = "SELECT conversation, created_ms, updated_ms, messages, coalesce(title, begins) FROM conversations"

LIST = f"""
{_LINE} WHERE user = ? AND messages > 0 AND (updated_ms, conversation) < (?, ?)
ORDER BY updated_ms DESC, conversation DESC LIMIT ?
"""

LINE = f"{_LINE} WHERE user = ? AND conversation = ? AND messages > 0"

DELETED = "SELECT deleted_ms FROM conversations WHERE user = ? AND conversation = ?"

POSTED = "SELECT posted_ms FROM turns WHERE user = ? AND conversation = ? AND message = ?"

# From ?3 back to the beginning: at most ?4 messages, and ?5 tokens.
PATH = f"""
WITH RECURSIVE path (n, id, parent, tokens) AS (
    SELECT 1, id, parent, tokens FROM turns WHERE user = ?1 AND conversation = ?2 AND message = ?3 AND tokens <= ?5
    UNION ALL
    SELECT n + 1, turns.id, turns.parent, path.tokens + turns.tokens FROM path JOIN turns
    ON turns.user = ?1 AND turns.conversation = ?2 AND turns.message = path.parent
    WHERE n < min(?4, {LONGEST_BRANCH}) AND path.tokens + turns.tokens <= ?5
)
SELECT id FROM path ORDER BY n
"""

TIP = f"""
WITH RECURSIVE down (n, message) AS (
    SELECT 0, message FROM turns WHERE user = ?1 AND conversation = ?2 AND message = ?3
    UNION ALL
    SELECT n + 1, (
        SELECT message FROM turns INDEXED BY turns_by_parent
        WHERE user = ?1 AND conversation = ?2 AND parent = down.message
        {_ORDER} LIMIT 1)
    FROM down WHERE down.message IS NOT NULL AND n < {LONGEST_BRANCH}
)
SELECT message FROM down WHERE message IS NOT NULL ORDER BY n DESC LIMIT 1
"""

CHILDREN = """
SELECT parent, message FROM turns INDEXED BY turns_by_parent
WHERE user = ? AND conversation = ? AND parent IN (SELECT value FROM json_each(?))
ORDER BY posted_ms, reply, role DESC, message
"""

SYSTEM = """
SELECT system FROM turns INDEXED BY turns_with_system
WHERE user = ? AND conversation = ? AND system IS NOT NULL ORDER BY posted_ms DESC, reply DESC LIMIT 1
"""

KEYS = """
SELECT client_key, coalesce(body_hash, ''), reply FROM turns
WHERE user = ? AND conversation = ? AND posted_ms >= ? AND client_key IS NOT NULL
ORDER BY posted_ms, reply, role DESC, message
"""

KEY = """
SELECT client_key, coalesce(body_hash, ''), reply FROM turns
WHERE user = ? AND conversation = ? AND client_key = ? ORDER BY posted_ms, reply LIMIT 1
"""

OF_REPLY = "SELECT record FROM turns WHERE user = ? AND reply = ? ORDER BY role = 'assistant', posted_ms"

RECORDS = "SELECT id, record FROM turns WHERE id IN (SELECT value FROM json_each(?))"

"""Settlement: when a reply ends, exactly one usage record, the assistant's turn, and word to intake.

It commits two numbers a partition with its usage records: P, up to where ends were settled, and L (in the offset's
metadata), from where the replies that were open then began. A restart folds from L and settles ends from P on.
"""

from __future__ import annotations

from schemas.events import ReplySettled, Turn, TurnSaved, UsageRecorded, pack_ids
from schemas.reply import State
from schemas.reply_records import Accepted
from streams.reply_table import ReplyTable, Watched
from streams.stage import NOTHING, Decision, Message, Stage
from topics.catalog import REPLIES
from topics.log import Place, Position
from topics.outputs import Routes

STATUS = {
    State.FINISHED: "complete",
    State.STOPPED: "stopped",
    State.FLAGGED: "flagged",
    State.SHED: "failed",
    State.FAILED: "failed",
}


class Settlement(Stage):
    name = "settlement"
    inputs = (REPLIES,)
    transactional = True

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._tables: dict[Place, ReplyTable] = {}
        self._settled_to: dict[Place, int] = {}

    def apply(self, message: Message) -> Decision:
        change = self._tables[message.place].apply(message)
        if not change.ended or change.watched is None or change.watched.reply.accepted is None:
            return NOTHING
        decision = self._settle(change.watched, change.watched.reply.accepted, message.at_ms)
        change.watched.reply.ids.clear()
        change.watched.reply.texts.clear()
        return decision if message.offset >= self._settled_to[message.place] else NOTHING

    def _settle(self, watched: Watched, accepted: Accepted, ended_ms: int) -> Decision:
        turn = assistant_turn(watched, accepted, ended_ms) if accepted.stored else None
        usage = usage_of(watched, accepted, ended_ms)
        settled = ReplySettled(
            user=accepted.user,
            conversation=accepted.conversation,
            reply=watched.reply.id,
            state=usage.state,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            turn=turn.turn if turn else None,
        )
        first = (self._routes.message(accepted.user, settled), *((self._routes.turn(turn),) if turn else ()))
        return Decision(first=first, committed=(self._routes.usage(usage),))

    def assigned(self, place: Place, committed: Position | None) -> int | None:
        self._tables[place] = ReplyTable()
        self._settled_to[place] = committed.offset if committed else 0
        return low_water(committed) if committed else None

    def revoked(self, place: Place) -> None:
        self._tables.pop(place, None)

    def position(self, place: Place, offset: int) -> Position:
        settled_to = max(offset, self._settled_to[place])
        return Position(settled_to, f"L={self._tables[place].low_water(offset)}")


def low_water(committed: Position) -> int:
    """L from the committed metadata; the position itself if there is none."""
    name, _, number = committed.metadata.partition("=")
    return int(number) if name == "L" and number.isdecimal() else committed.offset


def assistant_turn(watched: Watched, accepted: Accepted, ended_ms: int) -> TurnSaved:
    """The turn that an ended reply leaves: what readers were shown, token by token."""
    reply = watched.reply
    turn = Turn(
        message=accepted.assistant_message,
        parent=accepted.user_message,
        role="assistant",
        text=reply.text,
        token_ids=pack_ids(reply.ids),
        tokenizer=accepted.tokenizer,
        status=STATUS[reply.state],
    )
    return TurnSaved(
        user=accepted.user,
        conversation=accepted.conversation,
        turn=turn,
        reply=reply.id,
        model=accepted.model,
        created_ms=ended_ms,
        reason=reply.reason,
        prompt_tokens=accepted.prompt_tokens,
        completion_tokens=len(reply.ids),
        posted_ms=accepted.posted_ms,
        client_key=accepted.client_key,
        body_hash=accepted.body_hash,
        system=accepted.system,
    )


def usage_of(watched: Watched, accepted: Accepted, ended_ms: int) -> UsageRecorded:
    reply = watched.reply
    return UsageRecorded(
        reply=reply.id,
        user=accepted.user,
        account=accepted.account,
        plan=accepted.plan,
        conversation=accepted.conversation,
        model=accepted.model,
        pool=accepted.pool,
        tier=accepted.tier,
        state=reply.state.value.lower(),
        reason=reply.reason,
        attempts=reply.attempt,
        prompt_tokens=accepted.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        completion_tokens=len(reply.ids),
        accepted_ms=watched.accepted_ms,
        ended_ms=ended_ms,
        fingerprint=reply.started.fingerprint if reply.started else None,
        fingerprints=tuple(reply.fingerprints),
    )

"""Faults that were put into the product one at a time: what the simulator is worth is what it finds."""

from __future__ import annotations

from edge import view
from engine import block_manager, replica
from schemas import reply
from streams import active, admission, allowances, intake, router, settlement, snapshots, supervisor, writers
from streams import edges as seen_edges
from streams import replicas as seen_replicas
from streams.runtime import effects, runner
from tests.simulation.clients import Ask
from tests.simulation.mutation import Mutant
from tests.simulation.plan import EDGE_ROLES, Fault, Plan, plan_of
from tests.simulation.surroundings import Sizes
from topics import tail

EDGES_DIE_WITH_A_LISTENER = Plan(
    -1,
    asks=(Ask("c0", "alice", "c", "abcdefgh" * 3, 0, max_tokens=24, deadline_ms=200_000, gone_ms=501),),
    faults=tuple(Fault(edge, "down", edge, at_ms=500, for_ms=200) for edge in EDGE_ROLES),
    sizes=Sizes(step_ms=(2_000, 2_500), abandoned_s=2.0),
)


DELETED_TWICE_AND_A_RESTART_BETWEEN = Plan(
    0,
    asks=tuple(ask for ask in plan_of(126).asks if ask.name in ("c2", "c3")),
    faults=(Fault("w0", "again", "edge0", at_ms=523, count=5), Fault("f0", "crash", "intake", at_ms=2_600, for_ms=200)),
    sizes=plan_of(126).sizes,
    changes=plan_of(126).changes,
)


OF_THE_STAGES = (
    Mutant(
        "commits before outputs are acknowledged",
        (runner.Runner, "_commit"),
        ("self._producer.flush(ACKNOWLEDGE_S)", "pass"),
        found_by=142,
    ),
    Mutant(
        "sends a request before Accepted is acknowledged",
        (runner.Runner, "_act"),
        ("self._producer.flush(ACKNOWLEDGE_S)", "pass"),
        found_by=31,
    ),
    Mutant(
        "lets a request leave before Accepted",
        (intake.Intake, "_decision"),
        ("Decision(tuple(first), tuple(then))", "Decision(tuple(then), tuple(first))"),
        found_by=71,
    ),
    Mutant("ignores client keys", (admission, "repeated"), ("if used is None:", "if True:"), found_by=0),
    Mutant(
        "forgets parked messages in a restart",
        (active.Partition, "restore"),
        ("kept.conversation), kept)", "kept.conversation), replace(kept, parked=()))"),
        found_by=50,
    ),
    Mutant(
        "folds from P instead of L",
        (settlement, "low_water"),
        ('if name == "L" and number.isdecimal()', "if False"),
        found_by=3,
    ),
    Mutant(
        "settles again what was settled",
        (settlement.Settlement, "apply"),
        ("if message.offset >= self._settled_to[message.place]", "if True"),
        found_by=3,
    ),
    Mutant("commits past the backlog", (router.Router, "position"), ("if backlog", "if False"), found_by=156),
    Mutant(
        "takes no silent replica for dead",
        (seen_replicas.Seen, "dead"),
        ("self.followed[supervisor] >= SILENT_BEATS", "False"),
        found_by=123,
    ),
)
OF_THE_SUPERVISOR = (
    Mutant(
        "fences nobody",
        (supervisor.Supervisor, "_orphaned"),
        ("return bool(serving) and", "return False and"),
        found_by=9,
    ),
    Mutant(
        "beats without having read its last back",
        (supervisor.Supervisor, "ticks"),
        ("if self._unread:", "if False:"),
        found_by=42,
    ),
    Mutant(
        "gives up what somebody listens to",
        (supervisor.Supervisor, "_abandoned"),
        ('wanted == "continue" or any(', 'wanted == "continue" or False and any('),
        found_by=10,
    ),
    Mutant(
        "gives nothing up",
        (supervisor.Supervisor, "_abandoned"),
        ("self._alone[reply.id] += 1", "return False"),
        found_by=59,
    ),
    Mutant(
        "takes no silent edge for dead",
        (seen_edges.Edges, "alive"),
        ("< SILENT_BEATS", "< 10**9"),
        found_by=EDGES_DIE_WITH_A_LISTENER,
    ),
    Mutant(
        "takes no replica for stuck",
        (seen_replicas.Seen, "dead"),
        ("stuck = ", "stuck = False and "),
        found_by=453,
    ),
    Mutant(
        "forgets listeners in a restart",
        (snapshots, "watched_of"),
        ("{(one.edge, one.stream) for one in kept.listeners}", "set()"),
        found_by=549,
    ),
    Mutant(
        "forgets in a restart how far a reply had come",
        (snapshots, "watched_of"),
        ("ids = list(unpack_ids(kept.ids))", "ids = []"),
        found_by=89,
    ),
)
OF_THE_FOLD = (
    Mutant(
        "ignores that an attempt was opened",
        (reply, "_next_attempt"),
        ("return Verdict.VOID if reply.finished else Verdict.COUNTED", "return Verdict.VOID"),
        found_by=9,
    ),
    Mutant(
        "takes the last of two tokens with one number",
        (reply, "_next_tokens"),
        (
            "return Verdict.REPEAT if record.first + len(record.texts) - 1 <= known else Verdict.COUNTED",
            "del reply.ids[record.first - 1 :], reply.texts[record.first - 1 :]; return Verdict.COUNTED",
        ),
        found_by=198,
    ),
    Mutant(
        "takes tokens of who does not own the attempt",
        (reply, "_by_owner"),
        ("if reply.owner != record.incarnation:", "if False:"),
        found_by=342,
    ),
    Mutant(
        "ends as abandoned although a listener came back",
        (reply, "_still_abandoned"),
        ("Verdict.VOID if", "Verdict.COUNTED if"),
        found_by=29,
    ),
)
FOUND_HERE = (
    Mutant(
        "does not see that its beat was lost",
        (runner.Runner, "_act"),
        ("if self._undelivered:", "if False:"),
        found_by=448,
    ),
    Mutant(
        "holds for ever after a rebalance",
        (runner.Runner, "_projected"),
        ("if self._on_hold != self._projecting.holds:", "if decided and self._on_hold != self._projecting.holds:"),
        found_by=22170,
    ),
)
OF_THE_REST = (
    Mutant(
        "counts two owners of an attempt", (reply, "_may_start"), ("Verdict.FOREIGN", "Verdict.COUNTED"), found_by=942
    ),
    Mutant(
        "goes on after a failed delivery",
        (replica.Replica, "_write"),
        ("if error is not None and job is not None:", "if False:"),
        found_by=4857,
    ),
    Mutant(
        "keeps a block of an ended reply",
        (block_manager.BlockManager, "release"),
        ("if block.ref_count == 0:", "if block.ref_count == 0 and number % 7:"),
        found_by=0,
    ),
    Mutant(
        "leaves a record out at the seam",
        (tail.Tail, "_read_to"),
        ("record.offset < seam", "record.offset < seam - 1"),
        found_by=72,
    ),
    Mutant(
        "sends the last event again to who resumes",
        (view.ReplyView, "index_after"),
        ("[cursor] + 1", "[cursor]"),
        found_by=0,
    ),
)
OF_THE_LEDGER = (
    Mutant(
        "settles an end as often as it is told", (allowances, "settle"), ("if other is not held", "if True"), found_by=4
    ),
    Mutant(
        "keeps the reservation of a reply that failed",
        (allowances.Allowances, "settle"),
        ("if any(held.reply", 'if settled.state != "failed" and any(held.reply'),
        found_by=4,
    ),
    Mutant(
        "reserves again for a repeat",
        (intake.Intake, "_posted"),
        (
            "is not None:",
            "is not None and (self._admitted(partition, replace(kept, keys=(), open_reply=None), "
            "ParkedMessage(posted, now_ms), now_ms), True)[1]:",
        ),
        found_by=19,
    ),
    Mutant(
        "reserves nothing for the tokens of replies",
        (allowances, "reserve"),
        ("request.input, output, request.cached_percent", "request.input, 0, request.cached_percent"),
        found_by=4,
    ),
    Mutant(
        "forgets in a restart what users have used",
        (allowances.Allowances, "restore"),
        ("self.put(event)", "self.put(replace(event, ledgers=()))"),
        found_by=4,
    ),
)
OF_WRITERS = (
    Mutant(
        "decides anew what a writer has sent twice",
        (intake.Intake, "apply"),
        ("if partition.writers", "if False and partition.writers"),
        found_by=126,
    ),
    Mutant(
        "forgets in a restart who has written what",
        (writers.Writers, "restore"),
        ("for writer in kept.writers", "for writer in ()"),
        found_by=DELETED_TWICE_AND_A_RESTART_BETWEEN,
    ),
)
OF_HISTORY = (
    Mutant(
        "believes a store that is behind",
        (effects.Effects, "_history"),
        ("if not self.progress", "if False and not self.progress"),
        found_by=84,
    ),
)
OF_BRANCHES = (
    Mutant(
        "goes on from the newest message whatever was chosen",
        (admission, "turns_before"),
        ("end = message.parent or kept.leaf", "end = kept.leaf"),
        found_by=140,
    ),
    Mutant(
        "keeps the turns of a deleted conversation",
        (intake.Intake, "_deleted"),
        (
            "at_ms))\n",
            "at_ms, *((kept.leaf, kept.branch, '', False) if kept and kept.leaf else ())))\n",
        ),
        found_by=4,
    ),
)
MUTANTS = (
    *OF_THE_STAGES,
    *OF_THE_SUPERVISOR,
    *OF_THE_FOLD,
    *OF_THE_LEDGER,
    *OF_WRITERS,
    *OF_HISTORY,
    *OF_BRANCHES,
    *FOUND_HERE,
    *OF_THE_REST,
)

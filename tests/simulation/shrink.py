"""A failing plan made small: faults and clients are taken out as long as what is left still fails."""

from __future__ import annotations

from schemas.tokenizer import ChatTokenizer
from tests.simulation.plan import Plan
from tests.simulation.run import Run


def shrunk(plan: Plan, tokenizer: ChatTokenizer) -> Plan:
    """Fails as `plan` does, and with any one part less it would not. The same rule has to break."""
    rules = {violation.rule for violation in Run(plan, tokenizer).outcome().violations}
    smaller = True
    while smaller:
        smaller = False
        for name in reversed(plan.parts):
            candidate = plan.only(frozenset(plan.parts) - {name})
            if rules & {violation.rule for violation in Run(candidate, tokenizer).outcome().violations}:
                plan, smaller = candidate, True
    return plan

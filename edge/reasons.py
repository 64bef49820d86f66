"""Why a reply failed, in words that its user can act on; the reason itself stays the code that programs read."""

from __future__ import annotations

WORDS = {
    "deadline": "the reply was not whole before its deadline; what there is of it is kept",
    "replica_lost": "one server after the other was lost while it wrote this reply; ask again",
    "no_replica": "no server could take this reply in time; ask again later",
    "request_lost": "the server that wrote this reply was lost, and its request with it; ask again",
    "internal": "this reply could not be computed; ask again, and report it should it happen again",
}


def words_of(reason: str) -> str:
    """A sentence; a reason that carries its own numbers is one already."""
    return WORDS.get(reason) or (reason if ":" in reason else f"the reply failed ({reason})")

"""What can go wrong in a replica.

EngineError
|-- UnsupportedModel    the model's files hold what this engine does not compute; no retry helps
|-- OpsUnavailable      the C++ ops cannot be built here; a compiler, or LANEWAY_OPS=reference, helps
|-- NeverFits           prompt and reply are more than the model or the cache holds; a shorter prompt helps
`-- Replaced            another process has this replica's slot; a new start, under a new incarnation, helps
"""


class EngineError(Exception):
    """The root of the engine's errors."""


class UnsupportedModel(EngineError):
    """A file, a tensor or a type that is not supported; the message names it and what is supported."""


class OpsUnavailable(EngineError):
    """No compiler, a compiler that failed, or a CPU that they are not written for; the message says which."""


class NeverFits(EngineError):
    """The prompt and the longest possible reply need more than the model's context or the whole key-value cache has;
    the message says both numbers.
    """


class Replaced(EngineError):
    """A beat of another incarnation for the same slot lies behind this one's; the message names both."""

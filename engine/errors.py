"""What can go wrong in a replica.

EngineError
|-- UnsupportedModel    the model's files hold what this engine does not compute; no retry helps
|-- ContextExceeded     prompt and reply do not fit the model; no retry helps, a shorter prompt does
`-- NeverFits           prompt and reply need more blocks than there are; a shorter prompt helps, or a larger replica
"""


class EngineError(Exception):
    """The root of the engine's errors."""


class UnsupportedModel(EngineError):
    """A file, a tensor or a type that is not supported; the message names it and what is supported."""


class ContextExceeded(EngineError):
    """The prompt and the longest possible reply need more tokens than the model can attend to."""


class NeverFits(EngineError):
    """The prompt and the longest possible reply need more than the whole key-value cache; the message has both."""

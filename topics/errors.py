"""What can go wrong with the log and the store.

TopicsError
|-- Unavailable        the broker or the store does not answer; a retry may help
|-- DeliveryFailed     records were not acknowledged in time; they may or may not be in the log
|-- Missed             records were deleted before they were read; to read anew from what is left helps
|-- Fenced             another process has taken over this one's partitions or id; start anew, do not retry
|-- TopicMismatch      the cluster's topics are not the catalog's in a way that loses data; the operator must act
|-- UnknownReply       no such reply in the log; a retry does not help
`-- ExpiredReply       the reply is older than the log's memory; a retry does not help
"""

from __future__ import annotations


class TopicsError(Exception):
    """Any error of this package."""


class Unavailable(TopicsError):
    """The broker or the store does not answer."""


class DeliveryFailed(TopicsError):
    """Records were not acknowledged in time."""


class Missed(TopicsError):
    """Records were deleted before they were read."""


class Fenced(TopicsError):
    """Another process has taken over."""


class TopicMismatch(TopicsError):
    """The cluster's topics differ from the catalog in a dangerous way."""

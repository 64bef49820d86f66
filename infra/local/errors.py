"""What can go wrong on one machine:

    LocalError            shown to the user as one message
    ├── StartError        a process did not come up; its log says why
    ├── AlreadyRunning    another `laneway up` holds the data folder
    ├── NothingRuns       there is no `laneway up` on this data folder
    └── KeysError         the keys file is none, or has no such key

A retry helps once what the message names has been put right.
"""

from __future__ import annotations


class LocalError(Exception):
    """The message is for the user and complete: it says what to do."""


class StartError(LocalError):
    """A child ended, or was not ready in time."""


class AlreadyRunning(LocalError):
    """The data folder is in use by a running `laneway up`."""


class NothingRuns(LocalError):
    """No `laneway up` runs on the data folder."""


class KeysError(LocalError):
    """The keys file cannot be read or changed as asked."""

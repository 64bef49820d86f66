"""Runs a command that does not outlive its parent: `python tether.py PARENT_PID COMMAND...`.

In: the pid of the process that asks, and the command. Out: that command under the same pid, which
the kernel (Linux) sends SIGTERM when the asking thread ends, however it ends. Started as a file,
never imported: it must be small and fast.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the line above could arm
        sys.exit("tether: the parent has gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()

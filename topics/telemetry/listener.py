"""The port of a process that serves no users: /metrics for Prometheus, /health and /ready for whoever runs it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from schemas.settings import SettingError
from topics.telemetry.metrics import READY

Missing = Callable[[], list[str]]
JSON = "application/json"
REQUEST_TIMEOUT_S = 10.0


class Listener:
    """Answers on a thread of its own from the start until `close`. `missing` names what keeps the process unready."""

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, missing: Missing) -> None:
        READY.on(registry).set_function(lambda: not missing())

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                status, kind, body = answer(self.path.partition("?")[0], registry, missing)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: probes come every few seconds."""

        try:
            self._server = ThreadingHTTPServer(address, Handler)
        except OSError as error:
            raise SettingError(f"LANEWAY_METRICS_PORT={address[1]}: expected a free port: {error}") from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def answer(path: str, registry: CollectorRegistry, missing: Missing) -> tuple[int, str, bytes]:
    """Status, media type and body."""
    match path:
        case "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        case "/health":
            return 200, JSON, b'{"status": "ok"}'
        case "/ready":
            lacking = missing()
            return 503 if lacking else 200, JSON, json.dumps({"ready": not lacking, "missing": lacking}).encode()
    return 404, JSON, json.dumps({"error": f"{path}: expected /metrics, /health or /ready"}).encode()

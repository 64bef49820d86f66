"""Settings of an edge, read once at the start. A bad value stops the process with key, value and expected type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from schemas.settings import SettingError, setting
from topics.catalog import LONGEST_DEADLINE_MS

LONGEST_DEADLINE_S = LONGEST_DEADLINE_MS / 1000
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")
_HEX_KEY = re.compile(r"([0-9a-fA-F]{2}){16,}")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for a request that does not say. The first of `models`, which are all that is served."""

    models: tuple[str, ...]
    deadline_s: float
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True)
class TokenConfig:
    """JWTs of an app that has its own users; none are taken without `jwks`."""

    jwks: Path | None = setting("LANEWAY_JWKS", default=None, doc="JWKS file of who signs JWTs; none are taken without")
    issuer: str = setting("LANEWAY_JWT_ISSUER", default="", doc="iss that a JWT must have")
    audience: str = setting("LANEWAY_JWT_AUDIENCE", default="", doc="aud that a JWT must have")
    user_claim: str = setting("LANEWAY_JWT_USER_CLAIM", default="sub", doc="the claim that names the user")
    account_claim: str = setting(
        "LANEWAY_JWT_ACCOUNT_CLAIM", default="account", doc="the claim that names the account; without it the user"
    )
    plan_claim: str = setting("LANEWAY_JWT_PLAN_CLAIM", default="plan", doc="the claim that names the plan; else free")
    prefix: str = setting(
        "LANEWAY_JWT_PREFIX", default="jwt:", doc="put before users and accounts of JWTs, so that no key has the same"
    )

    def __post_init__(self) -> None:
        for key, value in (("LANEWAY_JWT_ISSUER", self.issuer), ("LANEWAY_JWT_AUDIENCE", self.audience)):
            if self.jwks and not value:
                raise SettingError(f"{key}={value}: expected text, since LANEWAY_JWKS={str(self.jwks)!r} is given")


@dataclass(frozen=True)
class EdgeConfig:
    host: str = setting("LANEWAY_EDGE_HOST", default="127.0.0.1", doc="the address an edge listens on")
    port: int = setting("LANEWAY_PORT", default=8701, doc="an edge's TCP port, unless --port gives it")
    certificate: str = setting(
        "LANEWAY_TLS_CERTIFICATE",
        default="",
        doc="file of the certificate chain; without it plain HTTP",
    )
    certificate_key: str = setting("LANEWAY_TLS_KEY", default="", doc="file of the certificate's private key")
    partitions: tuple[int, ...] = setting(
        "LANEWAY_EDGE_PARTITIONS", default=(), doc="home partitions: new replies go there; default all"
    )
    keys: Path = setting("LANEWAY_KEYS", default=Path(".laneway/keys.json"), doc="file of the API keys' digests")
    cell: int = setting("LANEWAY_CELL", default=0, doc="number of this cell, in every reply id")
    cell_key: str = setting(
        "LANEWAY_CELL_KEY", default="", doc="the cell's key for reply ids: hex, or a file that holds it", secret=True
    )
    models: tuple[str, ...] = setting(
        "LANEWAY_MODELS", default=("smollm2-135m-instruct",), doc="models served; the first is the default"
    )
    temperature: float = setting("LANEWAY_TEMPERATURE", default=1.0, doc="temperature where a request gives none")
    top_p: float = setting("LANEWAY_TOP_P", default=1.0, doc="top_p where a request gives none")
    origins: tuple[str, ...] = setting("LANEWAY_ORIGINS", default=(), doc="origins of pages that CORS lets in")
    edges: tuple[str, ...] = setting(
        "LANEWAY_EDGES", default=(), doc="public URLs of the cell's edges, where a page goes on when one fails"
    )
    session: int = setting("LANEWAY_SESSION", default=86_400, doc="seconds that a session's cookie lasts")
    cookie_domain: str = setting(
        "LANEWAY_COOKIE_DOMAIN", default="", doc="domain whose hosts share the cookie; default the edge's own host"
    )
    accept_timeout: float = setting("LANEWAY_ACCEPT_TIMEOUT", default=10.0, doc="seconds a POST waits for intake")
    send_timeout: float = setting("LANEWAY_SEND_TIMEOUT", default=10.0, doc="seconds before a slow reader is cut off")
    connections: int = setting("LANEWAY_CONNECTIONS", default=8192, doc="open connections, at most")
    of_address: int = setting(
        "LANEWAY_CONNECTIONS_OF_ADDRESS",
        default=0,
        doc="of them from one address, at most; 0: no limit, as behind a balancer",
    )
    keep_alive: float = setting("LANEWAY_KEEP_ALIVE", default=15.0, doc="seconds of silence before a stream's ping")
    deadline: float = setting("LANEWAY_DEADLINE", default=600.0, doc="seconds a reply may take, queue and run")
    max_body: int = setting(
        "LANEWAY_MAX_BODY", default=262_144, doc="bytes of a request's body, at most; under Kafka's limit for a record"
    )
    tokens: TokenConfig = TokenConfig()
    drain: float = setting("LANEWAY_EDGE_DRAIN", default=0.5, doc="seconds an edge is unready before its streams end")

    def __post_init__(self) -> None:
        for key, value, good, expected in (
            ("LANEWAY_PORT", self.port, 0 <= self.port <= 65535, "a port"),
            ("LANEWAY_CELL", self.cell, 0 <= self.cell <= 255, "an integer from 0 to 255"),
            ("LANEWAY_MODELS", self.models, bool(self.models), "at least one model"),
            ("LANEWAY_TEMPERATURE", self.temperature, 0 <= self.temperature <= 2, "a number from 0 to 2"),
            ("LANEWAY_TOP_P", self.top_p, 0 < self.top_p <= 1, "a number above 0, at most 1"),
            ("LANEWAY_ACCEPT_TIMEOUT", self.accept_timeout, self.accept_timeout > 0, "a positive number"),
            ("LANEWAY_SEND_TIMEOUT", self.send_timeout, self.send_timeout > 0, "a positive number"),
            ("LANEWAY_CONNECTIONS", self.connections, self.connections > 0, "a positive integer"),
            (
                "LANEWAY_CONNECTIONS_OF_ADDRESS",
                self.of_address,
                self.of_address >= 0,
                "an integer, not negative",
            ),
            ("LANEWAY_KEEP_ALIVE", self.keep_alive, self.keep_alive > 0, "a positive number"),
            (
                "LANEWAY_DEADLINE",
                self.deadline,
                0 < self.deadline <= LONGEST_DEADLINE_S,
                f"seconds, at most {LONGEST_DEADLINE_S:.0f}",
            ),
            ("LANEWAY_SESSION", self.session, self.session > 0, "a positive integer"),
            *(("LANEWAY_ORIGINS", url, is_origin(url), "origins: scheme://host:port") for url in self.origins),
            *(("LANEWAY_EDGES", url, is_origin(url), "URLs: scheme://host:port") for url in self.edges),
            ("LANEWAY_MAX_BODY", self.max_body, self.max_body > 0, "a positive integer"),
            ("LANEWAY_EDGE_DRAIN", self.drain, self.drain >= 0, "a number, not negative"),
        ):
            if not good:
                raise SettingError(f"{key}={value}: expected {expected}")

    @property
    def defaults(self) -> Defaults:
        return Defaults(self.models, self.deadline, self.temperature, self.top_p)

    def cell_key_bytes(self) -> bytes:
        """The cell's key. Raises SettingError when it is missing or no hex of at least 16 bytes."""
        text = self.cell_key
        if text and not _HEX_KEY.fullmatch(text) and Path(text).is_file():
            text = Path(text).read_text().strip()
        if not _HEX_KEY.fullmatch(text):
            raise SettingError("LANEWAY_CELL_KEY=***: expected at least 32 hex digits, or a file that holds them")
        return bytes.fromhex(text)

    def home(self, replies: int) -> tuple[int, ...]:
        """The home partitions in a cell with that many partitions of `replies`. Raises SettingError."""
        home = self.partitions or tuple(range(replies))
        if home[-1] >= replies:
            raise SettingError(f"LANEWAY_EDGE_PARTITIONS={home}: expected partitions from 0 to {replies - 1}")
        return home


def is_origin(url: str) -> bool:
    """Scheme, host and port, and nothing else: as a browser writes an origin."""
    return bool(_ORIGIN.fullmatch(url))

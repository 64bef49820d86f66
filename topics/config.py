"""Settings of everything that talks to the log: which cluster, and the sizes of the cell."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.settings import SettingError, setting
from topics.catalog import Sizes

SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class KafkaConfig:
    kafka: str = setting("LANEWAY_KAFKA", default="127.0.0.1:9092", doc="bootstrap servers, host:port,...")
    security: str = setting("LANEWAY_KAFKA_SECURITY", default="PLAINTEXT", doc="one of " + ", ".join(SECURITY))
    mechanism: str = setting("LANEWAY_KAFKA_SASL_MECHANISM", default="PLAIN", doc="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512")
    username: str = setting("LANEWAY_KAFKA_USERNAME", default="", doc="SASL user name")
    password: str = setting("LANEWAY_KAFKA_PASSWORD", default="", doc="SASL password", secret=True)
    ca: str = setting("LANEWAY_KAFKA_CA", default="", doc="file of the CA that signed the brokers' certificates")
    certificate: str = setting("LANEWAY_KAFKA_CERTIFICATE", default="", doc="file of the client's certificate")
    certificate_key: str = setting("LANEWAY_KAFKA_CERTIFICATE_KEY", default="", doc="file of its private key")
    replication: int = setting("LANEWAY_KAFKA_REPLICATION", default=1, doc="replicas of each topic that is created")
    pools: tuple[str, ...] = setting("LANEWAY_POOLS", default=("main",), doc="pools of replicas in this cell")
    slots: int = setting("LANEWAY_SLOTS", default=32, doc="replica slots a pool, fixed when its lanes are created")
    users: int = setting("LANEWAY_USER_PARTITIONS", default=16, doc="partitions of messages, turns and usage, fixed")
    replies: int = setting("LANEWAY_REPLY_PARTITIONS", default=16, doc="partitions of replies, fixed, at most 256")

    def __post_init__(self) -> None:
        if self.security not in SECURITY:
            raise SettingError(f"LANEWAY_KAFKA_SECURITY={self.security!r}: expected one of {', '.join(SECURITY)}")
        for key, value, most in (
            ("LANEWAY_KAFKA_REPLICATION", self.replication, 100),
            ("LANEWAY_SLOTS", self.slots, 10_000),
            ("LANEWAY_USER_PARTITIONS", self.users, 10_000),
            ("LANEWAY_REPLY_PARTITIONS", self.replies, 256),
        ):
            if not 1 <= value <= most:
                raise SettingError(f"{key}={value}: expected an integer from 1 to {most}")

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.pools, self.slots, self.users, self.replies)

    def connection(self) -> dict[str, str]:
        """The connection part of every librdkafka client's configuration."""
        given = {
            "bootstrap.servers": self.kafka,
            "security.protocol": self.security,
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.certificate_key,
        }
        if self.security.startswith("SASL"):
            given |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
        return {key: value for key, value in given.items() if value}

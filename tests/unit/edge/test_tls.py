"""An edge with a certificate speaks TLS alone, and tells browsers to keep to it."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edge.config import EdgeConfig
from edge.main import check_certificate
from schemas.settings import SettingError
from tests.unit.edge.running_edge import RunningEdge


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for localhost that signs itself, and its key."""
    key, folder = ec.generate_private_key(ec.SECP256R1()), tmp_path_factory.mktemp("tls")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=9))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    certificate = made.sign(key, hashes.SHA256())
    (folder / "chain.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return str(folder / "chain.pem"), str(folder / "key.pem")


def test_a_client_that_knows_the_certificate_chats_over_tls(files: tuple[str, str], tmp_path: Path) -> None:
    with RunningEdge(tmp_path, certificate=files[0], certificate_key=files[1]) as edge:
        trusted = ssl.create_default_context(cafile=files[0])
        with httpx.Client(base_url=f"https://localhost:{edge.port}", verify=trusted, trust_env=False) as page:
            signed_in = page.post("/v1/session", headers={"Authorization": "Bearer alice-key"})
            csrf = {"X-CSRF-Token": signed_in.json()["csrf"], "Accept": "text/event-stream"}
            streamed = page.post("/v1/conversations/c1/messages", json={"text": "hi"}, headers=csrf)
        with httpx.Client(base_url=edge.url, trust_env=False) as plain, pytest.raises(httpx.TransportError):
            plain.get("/health")
    assert "secure" in signed_in.headers["set-cookie"].lower()
    assert streamed.text.endswith("\n\n") and "event: finished" in streamed.text
    assert streamed.headers["strict-transport-security"] == "max-age=31536000"


def test_files_that_are_no_certificate_and_key_stop_the_start(files: tuple[str, str], tmp_path: Path) -> None:
    check_certificate(EdgeConfig(certificate=files[0], certificate_key=files[1]))
    (tmp_path / "empty").touch()
    for certificate, key in ((str(tmp_path / "none"), files[1]), (files[0], ""), (str(tmp_path / "empty"), files[1])):
        with pytest.raises(SettingError, match=r"LANEWAY_TLS_CERTIFICATE=.*PEM"):
            check_certificate(EdgeConfig(certificate=certificate, certificate_key=key))

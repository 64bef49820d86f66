"""An edge with a certificate speaks TLS alone, and tells browsers to keep to it."""

from __future__ import annotations

import datetime
import errno
import socket
import ssl
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edge import tls
from edge.config import EdgeConfig
from edge.main import check_certificate
from schemas.settings import SettingError
from tests.unit.edge.running_edge import PATIENCE_S, RunningEdge, wait_for
from tests.unit.edge.test_protocol import answer_of, raw

SILENT = 300
MOST_BYTES_A_HANDSHAKE = 128 * 1024


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


def test_what_a_client_says_before_the_edge_looks_is_heard(files: tuple[str, str], tmp_path: Path) -> None:
    hello, busy, over = ssl.MemoryBIO(), threading.Event(), threading.Event()
    client = ssl.create_default_context(cafile=files[0]).wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with RunningEdge(tmp_path, certificate=files[0], certificate_key=files[1]) as edge:
        edge.process.server.servers[0].get_loop().call_soon_threadsafe(lambda: busy.set() or over.wait())
        assert busy.wait(PATIENCE_S)
        with socket.create_connection(("127.0.0.1", edge.port), timeout=PATIENCE_S) as connection:
            connection.sendall(hello.read())
            over.set()
            assert connection.recv(1) == b"\x16"  # a handshake goes on


def test_handshakes_are_connections_and_are_waited_for_a_while(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = ssl.create_default_context(cafile=files[0])
    monkeypatch.setattr(tls, "HANDSHAKE_TIMEOUT_S", PATIENCE_S)
    with RunningEdge(tmp_path, certificate=files[0], certificate_key=files[1], connections=2) as edge:
        edge.url = f"https://localhost:{edge.port}"
        bounds = edge.process.server.config.bounds
        with raw(edge), raw(edge):
            wait_for(lambda: bounds.addresses.total() == 2)
            with raw(edge) as third:
                assert answer_of(third) == b""
        wait_for(lambda: not bounds.addresses)
        monkeypatch.setattr(tls, "HANDSHAKE_TIMEOUT_S", 0.05)
        with raw(edge) as silent, raw(edge, b"GET / HTTP/1.1\r\n\r\n") as plain:
            assert answer_of(silent) == b"" and b"HTTP/1.1" not in answer_of(plain)
        wait_for(lambda: not bounds.addresses)
        monkeypatch.setattr(tls, "HANDSHAKE_TIMEOUT_S", PATIENCE_S)
        with httpx.Client(base_url=edge.url, verify=trusted, trust_env=False) as client:
            assert 'laneway_edge_refused_total{code="tls_handshake"} 4.0' in client.get("/metrics").text


def test_who_comes_when_no_file_is_left_is_cut_and_counted_no_more(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with RunningEdge(tmp_path, certificate=files[0], certificate_key=files[1]) as edge:
        monkeypatch.setattr(tls.os, "dup", none_left)
        with raw(edge) as refused:
            assert answer_of(refused) == b""
        monkeypatch.undo()
        wait_for(lambda: not edge.process.server.config.bounds.addresses)
        edge.url = f"https://localhost:{edge.port}"
        with edge.client() as client:
            assert client.get("/health").status_code == 200


def test_clients_that_only_connect_cost_an_edge_little(files: tuple[str, str], tmp_path: Path) -> None:
    with RunningEdge(tmp_path, certificate=files[0], certificate_key=files[1]) as edge, ExitStack() as opened:
        here, bounds = psutil.Process(), edge.process.server.config.bounds
        before = here.memory_info().rss
        for _ in range(SILENT):
            opened.enter_context(raw(edge))
        wait_for(lambda: bounds.addresses.total() == SILENT)
        each = (here.memory_info().rss - before) / SILENT
        print(f"{each / 1024:.1f} KiB for each of {SILENT} handshakes that do not begin")
    assert each < MOST_BYTES_A_HANDSHAKE


def test_an_edge_ends_with_handshakes_that_do_not(files: tuple[str, str], tmp_path: Path) -> None:
    with RunningEdge(tmp_path, certificate=files[0], certificate_key=files[1]) as edge:
        silent = raw(edge)
        wait_for(lambda: edge.process.server.config.bounds.addresses.total() == 1)
    with silent:
        assert answer_of(silent) == b""


def test_files_that_are_no_certificate_and_key_stop_the_start(files: tuple[str, str], tmp_path: Path) -> None:
    check_certificate(EdgeConfig(certificate=files[0], certificate_key=files[1]))
    (tmp_path / "empty").touch()
    for certificate, key in ((str(tmp_path / "none"), files[1]), (files[0], ""), (str(tmp_path / "empty"), files[1])):
        with pytest.raises(SettingError, match=r"LANEWAY_TLS_CERTIFICATE=.*PEM"):
            check_certificate(EdgeConfig(certificate=certificate, certificate_key=key))

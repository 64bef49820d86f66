"""A JWT lets its user in when the app has signed it for this service, and at no other time."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from edge.config import EdgeConfig, TokenConfig
from edge.errors import Unauthorized
from edge.main import open_access
from edge.tokens import Tokens
from schemas.settings import SettingError, load
from tests.unit.edge.running_edge import CELL_KEY, RunningEdge, wait_for
from tests.unit.edge.test_auth import Clock, changed

RSA, EC = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
RSA_KEY = json.loads(RSAAlgorithm.to_jwk(RSA.public_key())) | {"kid": "k1", "use": "sig"}
EC_KEY = json.loads(ECAlgorithm.to_jwk(EC.public_key())) | {"kid": "k2"}
SECRET = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "k3", "alg": "HS256"}


@pytest.fixture
def config(tmp_path: Path) -> TokenConfig:
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [RSA_KEY, EC_KEY, SECRET]}))
    return TokenConfig(jwks, issuer="https://app.example", audience="laneway")


def signed(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "k1", **claims: Any) -> str:
    own = {"sub": "alice", "iss": "https://app.example", "aud": "laneway", "exp": time.time() + 600} | claims
    headers = {"kid": kid} if kid else {}
    return jwt.encode({name: value for name, value in own.items() if value is not None}, key, algorithm, headers)


def test_a_token_names_its_user_apart_from_those_of_keys(config: TokenConfig) -> None:
    caller = Tokens(config).admit(signed()).caller
    assert (caller.user, caller.account, caller.plan) == ("jwt:alice", "jwt:alice", "free")
    caller = Tokens(config).admit(signed(EC, "ES256", "k2", account="acme", plan="paid")).caller
    assert (caller.user, caller.account, caller.plan) == ("jwt:alice", "jwt:acme", "paid")


def test_claims_and_prefix_are_as_the_operator_says(config: TokenConfig) -> None:
    own = replace(config, user_claim="email", account_claim="org", plan_claim="tier", prefix="")
    caller = Tokens(own).admit(signed(email="a@app.example", org="acme", tier="business")).caller
    assert (caller.user, caller.account, caller.plan) == ("a@app.example", "acme", "business")


@pytest.mark.parametrize(
    "claims",
    [{"exp": 1}, {"exp": None}, {"nbf": 9e9}, {"iss": "https://evil.example"}, {"iss": None}, {"aud": "other"},
     {"aud": None}, {"sub": None}, {"sub": ""}, {"sub": "a\nb"}, {"sub": "x" * 201}, {"account": 5}, {"plan": []}],
    ids=str,
)  # fmt: skip
def test_a_wrong_claim_lets_nobody_in(config: TokenConfig, claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized):
        Tokens(config).admit(signed(**claims))


def test_a_wrong_signature_lets_nobody_in(config: TokenConfig) -> None:
    stranger = rsa.generate_private_key(65537, 2048)
    unsigned = jwt.encode({"sub": "alice"}, None, "none", {"kid": "k1"})
    wrong = [signed(stranger), signed(kid="k9"), signed(kid=None), signed(EC, "ES256", "k1"), signed(RSA, kid="k2")]
    wrong += [signed("secret-" * 6, "HS256", kid) for kid in ("k1", "k3")]
    for token in [*wrong, unsigned, "a.b.c", "..", signed()[:-4]]:
        with pytest.raises(Unauthorized):
            Tokens(config).admit(token)


def test_a_key_that_leaves_the_file_takes_its_tokens_with_it(config: TokenConfig) -> None:
    clock = Clock()
    tokens = Tokens(config, clock)
    let_in = tokens.admit(signed())
    assert config.jwks
    changed(config.jwks, json.dumps({"keys": [EC_KEY]}))
    assert tokens.trusts(let_in.credential)
    clock.now = 1.0
    assert not tokens.trusts(let_in.credential) and tokens.version == 1
    with pytest.raises(Unauthorized, match="kid is 'k1'"):
        tokens.admit(signed())


def test_a_page_signs_in_with_a_token_and_no_longer_than_it_lasts(config: TokenConfig, tmp_path: Path) -> None:
    bearer = {"Authorization": f"Bearer {signed()}"}
    with RunningEdge(tmp_path, tokens=config) as edge, edge.client(None) as page:
        session = page.post("/v1/session", headers=bearer).json()
        assert session["user"] == "jwt:alice" and 0 < session["expires_in"] <= 600
        assert page.get("/v1/models").status_code == 200
        assert config.jwks
        config.jwks.write_text(json.dumps({"keys": [EC_KEY]}))
        wait_for(lambda: page.get("/v1/models").status_code == 401)
        with edge.client() as with_key:
            assert with_key.get("/v1/models").status_code == 200


@pytest.mark.parametrize("text", ["", "[]", '{"keys": []}', json.dumps({"keys": [SECRET]}), '{"keys": [{"kty": "x"}]}'])
def test_a_file_without_a_public_key_stops_the_start(config: TokenConfig, tmp_path: Path, text: str) -> None:
    assert config.jwks
    config.jwks.write_text(text)
    (tmp_path / "keys.json").write_text('{"keys": []}')
    with pytest.raises(SettingError, match="LANEWAY_JWKS"):
        open_access(EdgeConfig(keys=tmp_path / "keys.json", cell_key=CELL_KEY, tokens=config))


def test_who_and_for_whom_must_be_said() -> None:
    given = {"LANEWAY_JWKS": "jwks.json", "LANEWAY_JWT_ISSUER": "i"}
    with pytest.raises(SettingError, match="LANEWAY_JWT_AUDIENCE"):
        load(TokenConfig, given)
    assert load(TokenConfig, given | {"LANEWAY_JWT_AUDIENCE": "a"}).jwks == Path("jwks.json")

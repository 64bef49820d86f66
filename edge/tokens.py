"""Who asks, for apps that have their own users: a JWT that the app has signed in, a Pass out.

The app's public keys are a JWKS file, read again when it changes; a key that leaves it takes its tokens, sessions and
streams with it. Users and accounts get a prefix, so that none meets one of the keys file unless the operator wants it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import jwt

from edge.auth import Caller, Pass
from edge.config import TokenConfig
from edge.errors import Unauthorized, shown
from edge.watched import WatchedFile
from schemas.ids import UserId

# Asymmetric ones only: with a public key for a shared secret, anyone could sign.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SIGNER = "jwt:"
LONGEST_NAME = 200


class BadKeySet(ValueError):
    """The file is no JWKS with a usable public key. The operator must mend it."""


class Tokens:
    """`config.jwks` is given. Raises BadKeySet or OSError at the start."""

    def __init__(self, config: TokenConfig, clock: Callable[[], float] = time.monotonic) -> None:
        assert config.jwks is not None
        self._config = config
        self._file = WatchedFile(config.jwks, read_key_set, clock)

    @property
    def version(self) -> int:
        return self._file.version

    def admit(self, token: str) -> Pass:
        """Raises Unauthorized."""
        try:
            signer = self._signer(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(
                token,
                signer,
                ALGORITHMS,
                audience=self._config.audience,
                issuer=self._config.issuer,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise Unauthorized(f"the token is not accepted: {error}") from error
        return Pass(self._caller(claims), f"{SIGNER}{signer.key_id}", float(claims["exp"]))

    def trusts(self, credential: str) -> bool:
        """Whether the key that a token was signed with is still in the file."""
        return credential.removeprefix(SIGNER) in self._file.value

    def _signer(self, kid: object) -> jwt.PyJWK:
        if not isinstance(kid, str) or kid not in self._file.value:
            raise Unauthorized(f"the token's kid is {shown(kid)}: expected one of the key set")
        return self._file.value[kid]

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        config = self._config
        user = config.prefix + _name(claims, config.user_claim)
        account = config.prefix + _name(claims, config.account_claim) if config.account_claim in claims else user
        plan = _name(claims, config.plan_claim) if config.plan_claim in claims else "free"
        return Caller(UserId(user), account, plan)


def read_key_set(text: bytes) -> dict[str, jwt.PyJWK]:
    """The public keys by their kid. Raises BadKeySet when there is none."""
    try:
        found = jwt.PyJWKSet.from_json(text.decode()).keys
    except (jwt.PyJWTError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise BadKeySet(f"no JWKS: {error}") from error
    usable = {key.key_id: key for key in found if key.key_id and key.algorithm_name in ALGORITHMS}
    if not usable:
        raise BadKeySet(f"no public key with a kid and one of {', '.join(ALGORITHMS)}")
    return usable


def _name(claims: Mapping[str, Any], claim: str) -> str:
    """Raises Unauthorized."""
    found = claims.get(claim)
    if not isinstance(found, str) or not 0 < len(found) <= LONGEST_NAME or not found.isprintable():
        raise Unauthorized(f"the token's {claim} is {shown(found)}: expected text of 1 to {LONGEST_NAME} characters")
    return found

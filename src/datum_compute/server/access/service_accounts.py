"""Service accounts: the tokens they get, and the users those tokens stand for.

A token names its plane, namespace, name and uid. It is good until it expires or its account is
gone; an account made anew under the same name has another uid, so old tokens stay worthless.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import SERVICE_ACCOUNT
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode, encode
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authentication import AUTHENTICATED, User
from datum_compute.server.access.rbac_objects import service_account_name
from datum_compute.store.journal import ObjectKey
from datum_compute.store.store import Store

# --- Signed tokens (JWT, ES256): claims in, text out, and back if the signature is ours
# Signing is deterministic, so that a simulated run gives the same tokens every time.


_NUMBER_BYTES = 32  # each half of a P-256 signature
_TOKEN_LENGTH_MAX = 8192
_REMEMBERED_MAX = 1024


class TokenSigner:
    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        encoded = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        key_id = _text(hashlib.sha256(encoded).digest())
        self._head = _text(encode({"alg": "ES256", "kid": key_id, "typ": "JWT"}))
        # A signature takes longer to check than a request to answer; those seen are remembered.
        self._seen: dict[str, JsonObject] = {}

    def sign(self, claims: JsonObject) -> str:
        content = f"{self._head}.{_text(encode(claims))}"
        algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
        first, second = decode_dss_signature(self._key.sign(content.encode(), algorithm))
        signature = first.to_bytes(_NUMBER_BYTES, "big") + second.to_bytes(_NUMBER_BYTES, "big")
        return f"{content}.{_text(signature)}"

    def claims_of(self, token: str) -> JsonObject | None:
        """The claims of a token that this key signed, in exactly the form it signs; else None.
        Whether they still hold is for the caller to say."""
        found = self._seen.get(token)
        if found is None:
            found = self._verified(token)
            if found is None:
                return None
            if len(self._seen) >= _REMEMBERED_MAX:
                self._seen.clear()
            self._seen[token] = found
        return found

    def _verified(self, token: str) -> JsonObject | None:
        head, _, rest = token.partition(".")
        body, _, signature = rest.partition(".")
        if len(token) > _TOKEN_LENGTH_MAX or head != self._head:
            return None
        try:
            raw = _bytes(signature)
            if len(raw) != 2 * _NUMBER_BYTES:
                return None
            self._public.verify(_der(raw), f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
            claims = decode(_bytes(body))
        except (InvalidSignature, ValueError, DecodeError):
            return None
        return claims if isinstance(claims, dict) else None


def _der(signature: bytes) -> bytes:
    halves = (signature[:_NUMBER_BYTES], signature[_NUMBER_BYTES:])
    return encode_dss_signature(*(int.from_bytes(half, "big") for half in halves))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Strict: exactly one text stands for some bytes, so that a token has one form only."""
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(raw) != text:
        raise ValueError("not the canonical form")
    return raw


# --- accounts


ISSUER = "https://datum-compute"
_PLANE = "compute.datumapis.com/plane"
_KUBERNETES = "kubernetes.io"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
SKEW_S = 10  # a clock that was set back a little must not refuse tokens of a moment ago


@dataclass(frozen=True, slots=True)
class Account:
    plane: PlaneName
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TokenUser:
    """Who a token stands for, for whom it was made, and when it ends."""

    user: User
    audiences: tuple[str, ...]
    until_s: float


@dataclass(frozen=True, slots=True)
class AccountTokens:
    store: Store
    signer: TokenSigner
    clock: Callable[[], float]

    def issued(
        self, account: Account, audiences: list[str], lifetime_s: int, token_id: str
    ) -> tuple[str, int]:
        """A token and the time it ends."""
        now = int(self.clock())
        claims = {
            "iss": ISSUER,
            "sub": service_account_name(account.namespace, account.name),
            "aud": audiences,
            "iat": now,
            "nbf": now,
            "exp": now + lifetime_s,
            "jti": token_id,
            _PLANE: account.plane,
            _KUBERNETES: {
                "namespace": account.namespace,
                "serviceaccount": {"name": account.name, "uid": account.uid},
            },
        }
        return self.signer.sign(claims), now + lifetime_s

    def user_of(self, token: str) -> TokenUser | None:
        """The user of a token that holds now; None for any other text."""
        claims = self.signer.claims_of(token)
        if claims is None or claims["iss"] != ISSUER:
            return None
        now = self.clock()
        if not claims["nbf"] - SKEW_S <= now < claims["exp"]:
            return None
        bound = claims[_KUBERNETES]
        found = bound["serviceaccount"]
        account = Account(
            PlaneName(claims[_PLANE]), bound["namespace"], found["name"], found["uid"]
        )
        if not self._exists(account):
            return None
        extra = ((_CREDENTIAL, (f"JTI={claims['jti']}",)),)
        return TokenUser(account_user(account, extra), tuple(claims["aud"]), claims["exp"])

    def _exists(self, account: Account) -> bool:
        key = ObjectKey(SERVICE_ACCOUNT.resource, account.namespace, account.name)
        try:
            record = self.store.get(account.plane, key)
        except NotFound:
            return False
        return record is not None and record.uid == account.uid


def account_user(account: Account, extra: tuple[tuple[str, tuple[str, ...]], ...] = ()) -> User:
    return User(
        name=service_account_name(account.namespace, account.name),
        groups=(
            "system:serviceaccounts",
            f"system:serviceaccounts:{account.namespace}",
            AUTHENTICATED,
        ),
        planes=frozenset({account.plane}),
        uid=account.uid,
        extra=extra,
    )

"""Service account tokens: how they are signed, and the users they identify.

A token names the plane, namespace, name and uid of its account. It is valid until it expires or the
account is deleted. An account that is created again under the same name has another uid, so earlier
tokens stay invalid.
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

# --- Signed tokens: JSON Web Tokens with ES256. Signing is deterministic, so that a simulation
# creates the same tokens in each run.


_NUMBER_BYTES = 32  # each half of a P-256 signature
_TOKEN_LENGTH_MAX = 8192
_CACHED_MAX = 1024


class TokenSigner:
    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public_key = key.public_key()
        encoded = self._public_key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        key_id = _encode_base64(hashlib.sha256(encoded).digest())
        self._header = _encode_base64(encode({"alg": "ES256", "kid": key_id, "typ": "JWT"}))
        # Claims of verified tokens: verifying a signature takes longer than a request.
        self._verified: dict[str, JsonObject] = {}

    def sign(self, claims: JsonObject) -> str:
        content = f"{self._header}.{_encode_base64(encode(claims))}"
        algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
        first, second = decode_dss_signature(self._key.sign(content.encode(), algorithm))
        signature = first.to_bytes(_NUMBER_BYTES, "big") + second.to_bytes(_NUMBER_BYTES, "big")
        return f"{content}.{_encode_base64(signature)}"

    def claims_of(self, token: str) -> JsonObject | None:
        """Return the claims of a token that this key signed; None for any other text. The caller
        checks whether the token has expired."""
        claims = self._verified.get(token)
        if claims is None:
            claims = self._verify(token)
            if claims is None:
                return None
            if len(self._verified) >= _CACHED_MAX:
                self._verified.clear()
            self._verified[token] = claims
        return claims

    def _verify(self, token: str) -> JsonObject | None:
        header, _, rest = token.partition(".")
        payload, _, signature_text = rest.partition(".")
        if len(token) > _TOKEN_LENGTH_MAX or header != self._header:
            return None
        try:
            signature = _decode_base64(signature_text)
            if len(signature) != 2 * _NUMBER_BYTES:
                return None
            self._public_key.verify(
                _encode_der(signature), f"{header}.{payload}".encode(), ec.ECDSA(hashes.SHA256())
            )
            claims = decode(_decode_base64(payload))
        except (InvalidSignature, ValueError, DecodeError):
            return None
        return claims if isinstance(claims, dict) else None


def _encode_der(signature: bytes) -> bytes:
    halves = (signature[:_NUMBER_BYTES], signature[_NUMBER_BYTES:])
    return encode_dss_signature(*(int.from_bytes(half, "big") for half in halves))


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_base64(text: str) -> bytes:
    """Decode strictly: only one text is valid for the same bytes, so that a token has one form."""
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _encode_base64(data) != text:
        raise ValueError("not the canonical form")
    return data


# --- Accounts


ISSUER = "https://datum-compute"
_PLANE_CLAIM = "compute.datumapis.com/plane"
_KUBERNETES_CLAIM = "kubernetes.io"
_CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
SKEW_S = 10  # accept tokens that were issued before the clock was set back a little


@dataclass(frozen=True, slots=True)
class Account:
    plane: PlaneName
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TokenUser:
    """The user of a token, the audiences for which it is valid, and when it expires."""

    user: User
    audiences: tuple[str, ...]
    until_s: float


class ServiceAccountTokens:
    """Issues and verifies the tokens of the service accounts in a store."""

    def __init__(self, store: Store, signer: TokenSigner, clock: Callable[[], float]) -> None:
        self._store = store
        self._signer = signer
        self._clock = clock

    def issue(
        self, account: Account, audiences: list[str], lifetime_s: int, token_id: str
    ) -> tuple[str, int]:
        """Return a token, and when it expires."""
        now = int(self._clock())
        claims = {
            "iss": ISSUER,
            "sub": service_account_name(account.namespace, account.name),
            "aud": audiences,
            "iat": now,
            "nbf": now,
            "exp": now + lifetime_s,
            "jti": token_id,
            _PLANE_CLAIM: account.plane,
            _KUBERNETES_CLAIM: {
                "namespace": account.namespace,
                "serviceaccount": {"name": account.name, "uid": account.uid},
            },
        }
        return self._signer.sign(claims), now + lifetime_s

    def user_of(self, token: str) -> TokenUser | None:
        """Return the user of a token that is valid now; None for any other text."""
        claims = self._signer.claims_of(token)
        if claims is None or claims["iss"] != ISSUER:
            return None
        if not claims["nbf"] - SKEW_S <= self._clock() < claims["exp"]:
            return None
        kubernetes_claim = claims[_KUBERNETES_CLAIM]
        service_account = kubernetes_claim["serviceaccount"]
        account = Account(
            PlaneName(claims[_PLANE_CLAIM]),
            kubernetes_claim["namespace"],
            service_account["name"],
            service_account["uid"],
        )
        if not self._exists(account):
            return None
        extra = ((_CREDENTIAL_ID, (f"JTI={claims['jti']}",)),)
        return TokenUser(account_user(account, extra), tuple(claims["aud"]), claims["exp"])

    def _exists(self, account: Account) -> bool:
        key = ObjectKey(SERVICE_ACCOUNT.resource, account.namespace, account.name)
        try:
            record = self._store.get(account.plane, key)
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

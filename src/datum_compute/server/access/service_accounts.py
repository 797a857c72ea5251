"""Service accounts: the tokens they get, and the users those tokens stand for.

A token names its plane, namespace, name and uid. It is good until it expires or its account is
gone; an account made anew under the same name has another uid, so old tokens stay worthless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import SERVICE_ACCOUNT
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authentication import AUTHENTICATED, User
from datum_compute.server.access.rbac_objects import service_account_name
from datum_compute.server.access.signer import TokenSigner
from datum_compute.store.journal import ObjectKey
from datum_compute.store.store import Store

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

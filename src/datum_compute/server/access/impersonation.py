"""Impersonation by the ``Impersonate-*`` headers.

The caller needs the verb ``impersonate`` for every part of the requested identity: the user or
service account, each group, the uid and each extra value. The request then runs with the
permissions of that user, and the audit log names both. The impersonated user reaches only planes
that the caller reaches. Headers of other proxies, such as ``X-Remote-User``, have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from datum_compute.api.errors import BadRequest
from datum_compute.api.http import Request
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import AUTHENTICATED, User

ANONYMOUS, UNAUTHENTICATED = "system:anonymous", "system:unauthenticated"
IMPERSONATE = "impersonate-"
_USER, _GROUP, _UID = f"{IMPERSONATE}user", f"{IMPERSONATE}group", f"{IMPERSONATE}uid"
_EXTRA = f"{IMPERSONATE}extra-"
_VERB = "impersonate"
_AUTHENTICATION_GROUP = "authentication.k8s.io"
_SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"


class _Permissions(Protocol):
    def check(self, user: User, plane: PlaneName, attributes: Attributes) -> None: ...


@dataclass(frozen=True, slots=True)
class _RequestedIdentity:
    name: str
    groups: tuple[str, ...]
    uid: str
    extra: tuple[tuple[str, tuple[str, ...]], ...]


def impersonated_user(
    permissions: _Permissions, caller: User, plane: PlaneName, request: Request
) -> User:
    """Return the user that the headers name. Raise Forbidden if the caller may not impersonate."""
    identity = _requested_identity(request)
    for attributes in _required_permissions(identity):
        permissions.check(caller, plane, attributes)
    return User(identity.name, _groups_of(identity), caller.planes, identity.uid, identity.extra)


def _requested_identity(request: Request) -> _RequestedIdentity:
    headers = request.headers
    for header in headers:
        is_known = header in (_USER, _GROUP, _UID) or header.startswith(_EXTRA)
        if header.startswith(IMPERSONATE) and not is_known:
            raise BadRequest(
                f"the header {header} is not one of Impersonate-User, -Group, -Uid, -Extra-<key>"
            )
    name = headers.get(_USER, "")
    if not name:
        raise BadRequest("the header Impersonate-User is missing; the other headers require it")
    extra = tuple(
        (unquote(header.removeprefix(_EXTRA)).lower(), _values(request, header))
        for header in sorted(headers)
        if header.startswith(_EXTRA)
    )
    return _RequestedIdentity(name, _values(request, _GROUP), headers.get(_UID, ""), extra)


def _values(request: Request, header: str) -> tuple[str, ...]:
    return tuple(filter(None, request.header_values(header)))


def _required_permissions(identity: _RequestedIdentity) -> Iterator[Attributes]:
    namespace, account = _split_service_account(identity.name)
    if account:
        yield Attributes(_VERB, "", "serviceaccounts", "", namespace, account)
    else:
        yield Attributes(_VERB, "", "users", name=identity.name)
    for group in identity.groups:
        yield Attributes(_VERB, "", "groups", name=group)
    if identity.uid:
        yield Attributes(_VERB, _AUTHENTICATION_GROUP, "uids", name=identity.uid)
    for key, values in identity.extra:
        for value in values:
            yield Attributes(_VERB, _AUTHENTICATION_GROUP, "userextras", key, name=value)


def _split_service_account(user: str) -> tuple[str, str]:
    """Return namespace and name of a service account; empty strings for other users."""
    namespace, _, account = user.removeprefix(_SERVICE_ACCOUNT_PREFIX).partition(":")
    is_account = user.startswith(_SERVICE_ACCOUNT_PREFIX) and account
    return (namespace, account) if is_account else ("", "")


def _groups_of(identity: _RequestedIdentity) -> tuple[str, ...]:
    groups = list(identity.groups)
    namespace, account = _split_service_account(identity.name)
    if account and not groups:
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    groups.append(UNAUTHENTICATED if identity.name == ANONYMOUS else AUTHENTICATED)
    return tuple(dict.fromkeys(groups))

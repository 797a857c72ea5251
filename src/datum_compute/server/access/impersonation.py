"""Asking as somebody else, by the ``Impersonate-*`` headers.

Every part of the borrowed identity needs the verb ``impersonate``: the user (or service account),
each group, the uid, each extra value. What is answered is what that user would get; the audit log
names both. The borrowed identity reaches no plane that its borrower does not. Headers by which
proxies forward a user (``X-Remote-User`` and the like) mean nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from datum_compute.api.errors import BadRequest
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import AUTHENTICATED, User

ANONYMOUS, UNAUTHENTICATED = "system:anonymous", "system:unauthenticated"
IMPERSONATE = "impersonate-"
_EXTRA = "impersonate-extra-"
_VERB = "impersonate"
_AUTHENTICATION = "authentication.k8s.io"
_ACCOUNT = "system:serviceaccount:"
SEPARATOR = "\n"  # between the values of a repeated header; cannot be part of one


class _Permissions(Protocol):
    def check(self, user: User, plane: PlaneName, wanted: Attributes) -> None: ...


@dataclass(frozen=True, slots=True)
class _Borrowed:
    name: str
    groups: tuple[str, ...]
    uid: str
    extra: tuple[tuple[str, tuple[str, ...]], ...]


def impersonated(
    permissions: _Permissions, caller: User, plane: PlaneName, headers: Mapping[str, str]
) -> User:
    """The user a request is answered for; the caller itself if it asks as nobody else."""
    for name in headers:
        if name.startswith(IMPERSONATE):
            break
    else:
        return caller
    borrowed = _borrowed(headers)
    for wanted in _permissions_for(borrowed):
        permissions.check(caller, plane, wanted)
    return User(borrowed.name, _all_groups(borrowed), caller.planes, borrowed.uid, borrowed.extra)


def _borrowed(headers: Mapping[str, str]) -> _Borrowed:
    known = (f"{IMPERSONATE}user", f"{IMPERSONATE}group", f"{IMPERSONATE}uid")
    for header in headers:
        if header.startswith(IMPERSONATE) and header not in known and not header.startswith(_EXTRA):
            raise BadRequest(
                f"the header {header} is not one of Impersonate-User, -Group, -Uid, -Extra-<key>"
            )
    name = headers.get(f"{IMPERSONATE}user", "")
    if not name:
        raise BadRequest("Impersonate-User is missing: nothing else can be impersonated alone")
    groups = tuple(_values(headers, f"{IMPERSONATE}group"))
    extra = tuple(
        (unquote(header.removeprefix(_EXTRA)).lower(), tuple(_values(headers, header)))
        for header in sorted(headers)
        if header.startswith(_EXTRA)
    )
    return _Borrowed(name, groups, headers.get(f"{IMPERSONATE}uid", ""), extra)


def _values(headers: Mapping[str, str], header: str) -> list[str]:
    return [value for value in headers.get(header, "").split(SEPARATOR) if value]


def _permissions_for(borrowed: _Borrowed) -> Iterator[Attributes]:
    namespace, account = _service_account(borrowed.name)
    if account:
        yield Attributes(_VERB, "", "serviceaccounts", "", namespace, account)
    else:
        yield Attributes(_VERB, "", "users", name=borrowed.name)
    for group in borrowed.groups:
        yield Attributes(_VERB, "", "groups", name=group)
    if borrowed.uid:
        yield Attributes(_VERB, _AUTHENTICATION, "uids", name=borrowed.uid)
    for key, values in borrowed.extra:
        for value in values:
            yield Attributes(_VERB, _AUTHENTICATION, "userextras", key, name=value)


def _service_account(name: str) -> tuple[str, str]:
    """Namespace and name, or empty strings when the user is no service account."""
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    return (namespace, account) if name.startswith(_ACCOUNT) and account else ("", "")


def _all_groups(borrowed: _Borrowed) -> tuple[str, ...]:
    groups = list(borrowed.groups)
    namespace, account = _service_account(borrowed.name)
    if account and not groups:
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    groups.append(UNAUTHENTICATED if borrowed.name == ANONYMOUS else AUTHENTICATED)
    return tuple(dict.fromkeys(groups))

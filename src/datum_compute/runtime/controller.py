"""A controller as a value: what it is for, what wakes it, and its reconcile function.

CONTROLLER = Controller(
    name="workload",
    role="project",
    kind=WORKLOAD,
    reconcile=reconcile,
    watches=(owns(DEPLOYMENT), watches("hub", DEPLOYMENT, to_project_key)),
)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Outcome
from datum_compute.runtime.view import View

C = TypeVar("C")
T = TypeVar("T", bound=ApiObject)

Mapping = Callable[[View, Change[Any]], Iterable[Key]]


@dataclass(frozen=True, slots=True)
class Watches:
    """Changes of ``kind`` on planes of ``role`` wake the keys that ``to_keys`` names."""

    role: str
    kind: KindInfo[Any]
    to_keys: Mapping


@dataclass(frozen=True, slots=True)
class Controller(Generic[C]):
    """``reconcile`` is given keys of ``kind`` on planes of ``role``, never one twice at once.

    Without a kind nothing but ``watches`` and ``outside`` wakes it.
    """

    name: str
    role: str
    kind: KindInfo[Any] | None
    reconcile: Callable[[C, Key], Awaitable[Outcome]]
    watches: tuple[Watches, ...] = ()
    # Wake-ups that are not API objects (a driver's machines), per plane of the role.
    outside: Callable[[C, View], AsyncIterator[Key]] | None = None
    workers: int = 2


def own_key(view: View, change: Change[Any]) -> Iterable[Key]:
    """The changed object itself."""
    yield Key(view.plane, ref_of(change.latest))


def reads(role: str, kind: KindInfo[Any]) -> Watches:
    """The kind is read, but its changes wake nobody: another edge must."""
    return Watches(role, kind, lambda _view, _change: ())


def watches(role: str, kind: KindInfo[T], to_keys: Mapping) -> Watches:
    return Watches(role, kind, to_keys)


def owns(role: str, kind: KindInfo[Any], owner: KindInfo[Any]) -> Watches:
    """Children wake the owner of kind ``owner`` that controls them."""

    def to_keys(view: View, change: Change[Any]) -> Iterable[Key]:
        child = change.latest
        for reference in child.metadata.owner_references:
            if reference.controller and reference.kind == owner.kind:
                namespace = child.metadata.namespace if owner.namespaced else ""
                yield Key(view.plane, Ref(namespace, reference.name))

    return Watches(role, kind, to_keys)

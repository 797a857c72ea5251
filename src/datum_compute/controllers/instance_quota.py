"""Functions that read the size and the claim of an instance, shared by the controllers of a cell.

This module contains no controller and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.compute.instance import Instance
from datum_compute.api.kinds import INSTANCE_TYPE, NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.controllers.context import Context
from datum_compute.planning.quota.claims import (
    ClaimLocation,
    InstanceSize,
    claimed_instance,
    find_claim_location,
    size_of,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Key
from datum_compute.runtime.informer import ObjectChange


def observe_claim_location(context: Context, key: Key) -> ClaimLocation | None:
    """Return where the claim of the instance is; None if its namespace names no project."""
    namespaces = context.planes.require(key.plane).read(NAMESPACE)
    namespace = namespaces.get(Ref("", key.ref.namespace))
    return find_claim_location(key.plane, namespace, context.single_project)


def size_on(context: Context, key: Key, instance: Instance) -> InstanceSize | None:
    """Return the size of the instance, computed with the instance types of its plane."""
    types = context.planes.require(key.plane).read(INSTANCE_TYPE)
    return size_of(instance.spec.runtime, lambda name: types.get(Ref("", name)))


def map_claim(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a claim to its instance. Claims of other consumers map to none."""
    found = claimed_instance(change.latest)
    if found is not None:
        yield Key(*found)

"""Report the status of an InstanceType on the platform plane.

Copies on other planes have no status of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.instancetype import InstanceType
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.platform.instance_types import plan_instance_type
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange

BY_REPLACEMENT = "replacement"


async def reconcile(context: Context, key: Key) -> Outcome:
    types = context.planes.require(key.plane).read(INSTANCE_TYPE)
    found = types.get(key.ref)
    if found is None:
        return Done()
    replacement = types.get(Ref("", found.spec.lifecycle.replacement_instance_type))
    plan = plan_instance_type(key.plane, found, replacement, context.now())
    return await carry_out(context.planes, plan)


def from_replacement(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The instance types that name the changed one as their replacement."""
    name = change.latest.metadata.name
    for found in view.cached(INSTANCE_TYPE).indexed(BY_REPLACEMENT, name):
        yield Key(view.plane, ref_of(found))


def _replacements(instance_type: InstanceType) -> tuple[str, ...]:
    name = instance_type.spec.lifecycle.replacement_instance_type
    return (name,) if name else ()


CONTROLLER = Controller(
    name="instancetype",
    role="platform",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE_TYPE),
        watches(INSTANCE_TYPE, from_replacement),
    ),
    indexes=(Index(INSTANCE_TYPE, BY_REPLACEMENT, _replacements),),
)

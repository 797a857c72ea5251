"""Instance without gates -> Server, and the Server's state back to the Instance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta import Ref
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.provisioning import plan_provisioning
from datum_compute.runtime.controller import Controller, for_, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.need(key.plane)
    instance = view.read(INSTANCE).get(key.ref)
    if instance is None:
        return Done()
    server = view.read(SERVER).get(key.ref)
    plan = plan_provisioning(key.plane, instance, server, context.now())
    return await carry_out(context.planes, plan)


def from_server(view: View, change: Change[Any]) -> Iterable[Key]:
    """The Instance that the reserved tag names."""
    tag = change.latest.spec.tags.get(labels.INSTANCE_TAG, "")
    namespace, _, rest = tag.partition("/")
    name = rest.partition("/")[0]
    if namespace and name:
        yield Key(view.plane, Ref(namespace, name))


CONTROLLER = Controller(
    name="provisioner",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE),
        watches(SERVER, from_server, expects_one="server-to-instance"),
    ),
    finalizers=(labels.PROVISIONER_FINALIZER,),
)

"""Networks of a project: which events reconcile their bindings and contexts."""

from __future__ import annotations

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.kinds import NETWORK_CONTEXT
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.networking.network import NetworkContext, NetworkContextSpec
from datum_compute.controllers.network.networks import BINDING_CONTROLLER
from testkit.builders import NOW
from tests.controllers.running_controllers import is_reconciled


def test_bindings_are_not_woken_by_holders_of_their_context() -> None:
    spec = NetworkContextSpec(network=LocalReference(name="n"), location=LocalReference(name="l"))
    context = NetworkContext(metadata=ObjectMeta(name="n-l", namespace="default"), spec=spec)
    held = replace(context.metadata, annotations={labels.LAST_HOLDER: "web"})

    def wakes(new: NetworkContext) -> bool:
        return is_reconciled(BINDING_CONTROLLER, NETWORK_CONTEXT, context, new)

    assert not wakes(replace(context, metadata=held))
    assert wakes(replace(context, spec=replace(spec, mtu=1400)))
    going = replace(context.metadata, deletion_timestamp=NOW)
    assert wakes(replace(context, metadata=going))

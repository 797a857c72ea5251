"""Network attachment of a project's deployment: its NetworkBinding, and the prefixes in its spec.

- The deployment is not copied to the hub before its attachment is decided, so that a cell seldom
  receives a deployment without a network.
- A network that cannot be attached is recorded too, with its reason, and is reported on every
  instance.
- Attached prefixes are never removed, because machines may have addresses from them.
- When the template changes to another network, the binding of the old network stays until no
  instance uses the old template.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from datum_compute.api.compute.deployment import (
    AttachedPrefix,
    AttachmentProblem,
    NetworkAttachment,
    WorkloadDeployment,
)
from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.conditions import FALSE, TRUE, find_condition
from datum_compute.api.kinds import DEPLOYMENT, NETWORK_BINDING
from datum_compute.api.meta.codec import canonical
from datum_compute.api.meta.fields import (
    CITY_CODE_KEY,
    LocalReference,
    NamespacedReference,
    TypedObjectReference,
)
from datum_compute.api.meta.json_patch import build_merge_patch
from datum_compute.api.meta.objects import ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.networking.location import LocationBinding
from datum_compute.api.networking.network import (
    DEFAULT_NETWORK,
    NetworkBinding,
    NetworkBindingSpec,
    NetworkContext,
    Subnet,
)
from datum_compute.api.planes import PlaneName, normalize_city
from datum_compute.planning.apply import plan_object
from datum_compute.planning.network.networks import binding_labels
from datum_compute.planning.network.subnets import prefix_of, subnet_name
from datum_compute.planning.plan import Action, Delete, Patch, Plan, Wait

RECHECK_S = 60.0


@dataclass(frozen=True, slots=True)
class DesiredNetwork:
    """The network that a deployment requests, and the location where it needs the network."""

    network: Ref
    location: str


@dataclass(frozen=True, slots=True)
class ContextWithSubnets:
    """The context that the status of the binding names, with its subnets by name."""

    context: NetworkContext
    subnets: Mapping[str, Subnet]


def network_of(template: InstanceTemplate, namespace: str) -> Ref:
    """Return the network of the first interface, or the default network."""
    interfaces = template.spec.network_interfaces
    if not interfaces:
        return DEFAULT_NETWORK
    reference = interfaces[0].network
    return Ref(reference.namespace or namespace, reference.name)


def location_for(city: str, locations: Sequence[LocationBinding]) -> LocationBinding | None:
    """Return the location of a city; the first by name if there are several."""
    serving = [b for b in locations if city_of(b) == normalize_city(city)]
    return min(serving, key=lambda binding: binding.metadata.name, default=None)


def city_of(location: LocationBinding) -> str:
    return normalize_city(location.spec.topology.get(CITY_CODE_KEY, ""))


def binding_ref(deployment: WorkloadDeployment, desired: DesiredNetwork) -> Ref:
    """Return the ref of the binding that the deployment needs.

    The name depends on the network and the location, because a binding cannot change them.
    """
    seed = f"{desired.network}\0{desired.location}"
    digest = hashlib.sha256(seed.encode()).hexdigest()[:8]
    metadata = deployment.metadata
    return Ref(metadata.namespace, f"{metadata.name}-net-{digest}")


def plan_attachment(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    location: LocationBinding | None,
    bindings: Sequence[NetworkBinding],
    context: ContextWithSubnets | None,
) -> Plan:
    """Plan the binding and the attachment of a deployment.

    ``bindings`` are owned by the deployment; ``context`` is that of the binding it needs.
    """
    if deployment.is_terminating:
        return Plan()  # the garbage collector deletes the bindings after the deployment
    network = network_of(deployment.spec.template, deployment.metadata.namespace)
    if location is None:
        message = f"The project has no LocationBinding for {deployment.spec.city_code}"
        return _plan_patch(
            plane, deployment, _build_problem(network, "", "LocationNotAvailable", message)
        )
    desired = DesiredNetwork(network, location.spec.location_ref.name)
    ref = binding_ref(deployment, desired)
    binding = next((b for b in bindings if ref_of(b) == ref), None)
    actions = plan_object(
        plane, NETWORK_BINDING, _binding(deployment, desired, ref), binding, f"for {network}"
    )
    actions += _plan_old_binding_deletion(
        plane, deployment, network, [b for b in bindings if ref_of(b) != ref]
    )
    attachment = _build_attachment(desired, binding, context)
    if attachment is None:
        return Plan(
            (*actions, Wait(f"network {network} is not set up in {desired.location} yet")),
            RECHECK_S,
        )
    update = _plan_patch(plane, deployment, attachment)
    return Plan((*actions, *update.actions), update.requeue_after_s)


def _build_attachment(
    desired: DesiredNetwork, binding: NetworkBinding | None, found: ContextWithSubnets | None
) -> NetworkAttachment | None:
    """Return the attachment or the problem to record; None while the binding is pending."""
    network, location = desired.network, desired.location
    ready = binding and find_condition(binding.status.conditions, "Ready")
    if not ready:
        return None
    if ready.status == FALSE:
        return _build_problem(network, location, ready.reason, ready.message)
    if ready.status != TRUE or found is None:
        return None
    context = found.context
    subnets = [found.subnets.get(subnet_name(context, f)) for f in context.spec.ip_families]
    prefixes = [
        _attached_prefix(subnet) for subnet in subnets if subnet is not None and prefix_of(subnet)
    ]
    if not prefixes:
        message = f"Network {network} allocates no addresses: its ipam.mode is Policy"
        return _build_problem(network, location, "NoAddresses", message)
    return NetworkAttachment(
        network=network.name,
        namespace=network.namespace,
        prefixes=prefixes,
        mtu=context.spec.mtu,
        location=location,
    )


def _attached_prefix(subnet: Subnet) -> AttachedPrefix:
    prefix = ip_network(prefix_of(subnet))
    gateway = str(prefix.network_address + 1)
    return AttachedPrefix(family=subnet.spec.ip_family, prefix=str(prefix), gateway=gateway)


def _build_problem(network: Ref, location: str, reason: str, message: str) -> NetworkAttachment:
    return NetworkAttachment(
        network=network.name,
        namespace=network.namespace,
        problem=AttachmentProblem(reason=reason, message=message),
        location=location,
    )


def _plan_patch(plane: PlaneName, deployment: WorkloadDeployment, new: NetworkAttachment) -> Plan:
    """Write the attachment to the spec. A problem never replaces prefixes of the same network."""
    old = deployment.spec.network_attachment
    recheck_s = RECHECK_S if new.problem is not None else None
    # Earlier releases did not record the namespace.
    is_same_network = old and old.network == new.network and old.namespace in ("", new.namespace)
    if old == new or (old and old.prefixes and new.problem and is_same_network):
        return Plan(requeue_after_s=recheck_s)
    patch = {
        "metadata": {"resourceVersion": deployment.metadata.resource_version},
        "spec": {
            "networkAttachment": build_merge_patch(canonical(old) if old else {}, canonical(new))
        },
    }
    reason = f"network {new.network}" if new.problem is None else new.problem.reason
    return Plan((Patch(plane, DEPLOYMENT, ref_of(deployment), patch, reason),), recheck_s)


def _plan_old_binding_deletion(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    network: Ref,
    old: Sequence[NetworkBinding],
) -> list[Action]:
    """Delete bindings of earlier networks when all instances use the desired one.

    Until then instances may have addresses from the prefixes of the old network.
    """
    attached = deployment.spec.network_attachment
    if attached is None or attached.problem is not None or not is_rollout_complete(deployment):
        return []
    if Ref(attached.namespace, attached.network) != network:
        return []
    return [
        Delete(plane, NETWORK_BINDING, ref_of(b), b.metadata.uid, "no instance uses this network")
        for b in old
        if not b.is_terminating
    ]


def is_rollout_complete(deployment: WorkloadDeployment) -> bool:
    """Return True if all instances have the current template."""
    status = deployment.status
    observed = status.observed_generation == deployment.metadata.generation
    return observed and status.replicas == status.updated_replicas == status.desired_replicas


def _binding(deployment: WorkloadDeployment, desired: DesiredNetwork, ref: Ref) -> NetworkBinding:
    return NetworkBinding(
        metadata=ObjectMeta(
            name=ref.name,
            namespace=ref.namespace,
            labels=binding_labels(desired.network, desired.location),
            owner_references=[owner_reference(deployment, DEPLOYMENT)],
        ),
        spec=NetworkBindingSpec(
            network=NamespacedReference(
                name=desired.network.name, namespace=desired.network.namespace
            ),
            location=LocalReference(name=desired.location),
            consumer=TypedObjectReference(
                api_group=DEPLOYMENT.group,
                kind=DEPLOYMENT.kind,
                name=deployment.metadata.name,
                namespace=deployment.metadata.namespace,
            ),
        ),
    )

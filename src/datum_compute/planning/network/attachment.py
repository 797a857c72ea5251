"""How a project's deployment gets to know its network: a binding, and what came of it in the spec.

The deployment is held back from the hub until this is decided, so that a cell seldom sees one
without a network. What cannot be had travels too, with its reason, and is told on every instance.
Prefixes that were attached are never taken back: machines may have addresses from them. When the
template changes to another network, the binding of the old one stays until nothing old runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from datum_compute.api.codec import canonical
from datum_compute.api.conditions import FALSE, TRUE, find_condition
from datum_compute.api.fields import (
    CITY_CODE_KEY,
    LocalReference,
    NamespacedReference,
    ObjectReference,
)
from datum_compute.api.identity import normalized_city
from datum_compute.api.instance import InstanceTemplate
from datum_compute.api.kinds import DEPLOYMENT, NETWORK_BINDING
from datum_compute.api.locationbinding import LocationBinding
from datum_compute.api.mergepatch import merge_patch
from datum_compute.api.meta import ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.network import DEFAULT_NETWORK
from datum_compute.api.networkbinding import NetworkBinding, NetworkBindingSpec
from datum_compute.api.networkcontext import NetworkContext
from datum_compute.api.plane import PlaneName
from datum_compute.api.subnet import Subnet
from datum_compute.api.workloaddeployment import (
    AttachedPrefix,
    AttachmentProblem,
    NetworkAttachment,
    WorkloadDeployment,
)
from datum_compute.planning.apply import plan_object
from datum_compute.planning.network.networks import binding_labels
from datum_compute.planning.network.subnets import prefix_of, subnet_name
from datum_compute.planning.plan import Action, Delete, Patch, Plan, Wait

RECHECK_S = 60.0


@dataclass(frozen=True, slots=True)
class DesiredNetwork:
    """The network of a deployment, and where it wants it."""

    network: Ref
    location: str


@dataclass(frozen=True, slots=True)
class ContextWithSubnets:
    """The context that the binding was promised, with its subnets by name."""

    context: NetworkContext
    subnets: Mapping[str, Subnet]


def network_of(template: InstanceTemplate, namespace: str) -> Ref:
    """The network of its interface, or the one that every project has."""
    interfaces = template.spec.network_interfaces
    if not interfaces:
        return DEFAULT_NETWORK
    named = interfaces[0].network
    return Ref(named.namespace or namespace, named.name)


def location_for(city: str, locations: Sequence[LocationBinding]) -> LocationBinding | None:
    """The location of a city; of several the first by name."""
    serving = [b for b in locations if city_of(b) == normalized_city(city)]
    return min(serving, key=lambda b: b.metadata.name, default=None)


def city_of(location: LocationBinding) -> str:
    return normalized_city(location.spec.topology.get(CITY_CODE_KEY, ""))


def binding_ref(deployment: WorkloadDeployment, wanted: DesiredNetwork) -> Ref:
    """Another for another network, because a binding is about one network for good."""
    about = f"{wanted.network}\0{wanted.location}"
    digest = hashlib.sha256(about.encode()).hexdigest()[:8]
    metadata = deployment.metadata
    return Ref(metadata.namespace, f"{metadata.name}-net-{digest}")


def plan_attachment(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    location: LocationBinding | None,
    bindings: Sequence[NetworkBinding],
    presence: ContextWithSubnets | None,
) -> Plan:
    """``bindings`` are those the deployment owns; ``presence`` belongs to the one it wants."""
    if deployment.is_terminating:
        return Plan()  # the binding goes with the deployment, when nothing is left of it anywhere
    network = network_of(deployment.spec.template, deployment.metadata.namespace)
    if location is None:
        message = f"The project has no LocationBinding for {deployment.spec.city_code}"
        return _told(plane, deployment, _problem(network, "", "LocationNotAvailable", message))
    wanted = DesiredNetwork(network, location.spec.location_ref.name)
    ref = binding_ref(deployment, wanted)
    binding = next((b for b in bindings if ref_of(b) == ref), None)
    actions = plan_object(
        plane, NETWORK_BINDING, _binding(deployment, wanted, ref), binding, f"for {network}"
    )
    actions += _leave_old(plane, deployment, network, [b for b in bindings if ref_of(b) != ref])
    attachment = _attachment(wanted, binding, presence)
    if attachment is None:
        return Plan((*actions, Wait(f"{network} is not in {wanted.location} yet")), RECHECK_S)
    told = _told(plane, deployment, attachment)
    return Plan((*actions, *told.actions), told.requeue_after_s)


def _attachment(
    wanted: DesiredNetwork, binding: NetworkBinding | None, presence: ContextWithSubnets | None
) -> NetworkAttachment | None:
    """None while nothing is decided."""
    network, location = wanted.network, wanted.location
    ready = binding and find_condition(binding.status.conditions, "Ready")
    if not ready:
        return None
    if ready.status == FALSE:
        return _problem(network, location, ready.reason, ready.message)
    if ready.status != TRUE or presence is None:
        return None
    context = presence.context
    found = [
        presence.subnets.get(subnet_name(context, family)) for family in context.spec.ip_families
    ]
    prefixes = [_prefix(subnet) for subnet in found if subnet is not None and prefix_of(subnet)]
    if not prefixes:
        message = f"Network {network} gives out no addresses: its ipam.mode is Policy"
        return _problem(network, location, "NoAddresses", message)
    return NetworkAttachment(
        network=network.name,
        namespace=network.namespace,
        prefixes=prefixes,
        mtu=context.spec.mtu,
        location=location,
    )


def _prefix(subnet: Subnet) -> AttachedPrefix:
    prefix = ip_network(prefix_of(subnet))
    gateway = str(prefix.network_address + 1)
    return AttachedPrefix(family=subnet.spec.ip_family, prefix=str(prefix), gateway=gateway)


def _problem(network: Ref, location: str, reason: str, message: str) -> NetworkAttachment:
    return NetworkAttachment(
        network=network.name,
        namespace=network.namespace,
        problem=AttachmentProblem(reason=reason, message=message),
        location=location,
    )


def _told(plane: PlaneName, deployment: WorkloadDeployment, new: NetworkAttachment) -> Plan:
    """Written into the spec; a problem never replaces prefixes of the same network."""
    old = deployment.spec.network_attachment
    recheck_s = RECHECK_S if new.problem is not None else None
    # Earlier releases did not write the namespace down.
    same = old and old.network == new.network and old.namespace in ("", new.namespace)
    if old == new or (old and old.prefixes and new.problem and same):
        return Plan(requeue_after_s=recheck_s)
    patch = {
        "metadata": {"resourceVersion": deployment.metadata.resource_version},
        "spec": {"networkAttachment": merge_patch(canonical(old) if old else {}, canonical(new))},
    }
    reason = f"network {new.network}" if new.problem is None else new.problem.reason
    return Plan((Patch(plane, DEPLOYMENT, ref_of(deployment), patch, reason),), recheck_s)


def _leave_old(
    plane: PlaneName,
    deployment: WorkloadDeployment,
    network: Ref,
    old: Sequence[NetworkBinding],
) -> list[Action]:
    """Only when everything runs on the network that is wanted: what holds the prefixes of the old
    one must stay while anything may have an address of them."""
    attached = deployment.spec.network_attachment
    if attached is None or attached.problem is not None or not is_rollout_complete(deployment):
        return []
    if Ref(attached.namespace, attached.network) != network:
        return []
    return [
        Delete(plane, NETWORK_BINDING, ref_of(b), b.metadata.uid, "nothing old runs any more")
        for b in old
        if not b.is_terminating
    ]


def is_rollout_complete(deployment: WorkloadDeployment) -> bool:
    """Whether everything that runs is of the present template."""
    status = deployment.status
    observed = status.observed_generation == deployment.metadata.generation
    return observed and status.replicas == status.updated_replicas == status.desired_replicas


def _binding(deployment: WorkloadDeployment, wanted: DesiredNetwork, ref: Ref) -> NetworkBinding:
    return NetworkBinding(
        metadata=ObjectMeta(
            name=ref.name,
            namespace=ref.namespace,
            labels=binding_labels(wanted.network, wanted.location),
            owner_references=[owner_reference(deployment, DEPLOYMENT)],
        ),
        spec=NetworkBindingSpec(
            network=NamespacedReference(
                name=wanted.network.name, namespace=wanted.network.namespace
            ),
            location=LocalReference(name=wanted.location),
            consumer=ObjectReference(
                api_group=DEPLOYMENT.group,
                kind=DEPLOYMENT.kind,
                name=deployment.metadata.name,
                namespace=deployment.metadata.namespace,
            ),
        ),
    )

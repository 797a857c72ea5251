"""What a new Instance looks like: the template, the labels that make it known on every plane, and
the gates that hold it until what it needs is there."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.fields import NamespacedReference
from datum_compute.api.identity import instance_name
from datum_compute.api.instance import Instance, InstanceControl, InstanceSpec, TemplateSpec
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta import ObjectMeta, owner_reference
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.rollout.gates import first_gates


def new_instance(deployment: WorkloadDeployment, number: int, current: str) -> Instance:
    """``current`` is the hash of the deployment's template."""
    template = deployment.spec.template
    asked = {field: getattr(template.spec, field) for field in TemplateSpec.__struct_fields__}
    control = InstanceControl(template_hash=current, scheduling_gates=first_gates(deployment))
    return Instance(
        metadata=ObjectMeta(
            name=instance_name(deployment.metadata.name, number),
            namespace=deployment.metadata.namespace,
            labels={**template.metadata.labels, **platform_labels(deployment, number)},
            annotations=template.metadata.annotations,
            owner_references=[owner_reference(deployment, DEPLOYMENT)],
            # There from the first moment, so that no crash can leave a machine behind an instance
            # that is gone. For a copy on the hub nothing waits: planning/federation/instances.py says why.
            finalizers=[labels.PROVISIONER_FINALIZER],
        ),
        spec=InstanceSpec(**asked, controller=control, location=location_of(deployment)),
    )


def location_of(deployment: WorkloadDeployment) -> NamespacedReference | None:
    """Of the project; not known before somebody has looked for the network there."""
    attachment = deployment.spec.network_attachment
    name = attachment.location if attachment is not None else ""
    return NamespacedReference(name=name) if name else None


def platform_labels(deployment: WorkloadDeployment, number: int) -> dict[str, str]:
    """Labels that the platform keeps on an instance, whatever its template says."""
    return {**shared_labels(deployment), labels.INSTANCE_INDEX: str(number)}


def shared_labels(deployment: WorkloadDeployment) -> dict[str, str]:
    """Those that all instances of a deployment have."""
    spec = deployment.spec
    return {
        labels.WORKLOAD_UID: spec.workload_ref.uid,
        labels.WORKLOAD_NAME: spec.workload_ref.name,
        labels.DEPLOYMENT_UID: deployment.metadata.uid,
        labels.DEPLOYMENT_NAME: deployment.metadata.name,
        labels.PLACEMENT_NAME: spec.placement_name,
        labels.CITY_CODE: spec.city_code,
    }

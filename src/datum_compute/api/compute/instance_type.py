"""InstanceType: a size that instances can have. Operators create it for all projects.

Its resources cannot be changed, because quota was claimed for them; create another type instead. An
Active type can be used. A Deprecated type results in a warning that contains its replacement. A
Disabled type is refused (admission/rules/instance_type.py). Quantities are those of Kubernetes
without zero and exponents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import Cpu, Memory, ShortText, Text, Time, doc, immutable
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn, selectable_fields

# CPUs and memory of the types that every new plane contains, by name.
BUILT_IN_SIZES: Mapping[str, tuple[str, str]] = {
    "d1-standard-1": ("500m", "1Gi"),
    "d1-standard-2": ("1", "2Gi"),
    "d1-standard-4": ("2", "4Gi"),
    "d1-standard-8": ("4", "8Gi"),
}
# Older prefix of the same names.
_ALIAS_PREFIX = "datumcloud/"


def size_name(instance_type: str) -> str:
    """Return the name of the InstanceType to which a template refers."""
    return instance_type.removeprefix(_ALIAS_PREFIX)


class InstanceTypeResources(ApiStruct, frozen=True, kw_only=True):
    """CPU and memory of an instance of this type."""

    cpu: Annotated[Cpu, doc("Number of CPUs, such as 2 or 500m.")]
    memory: Annotated[Memory, doc("Amount of memory, such as 2Gi or 512Mi.")]


class InstanceTypeLifecycle(ApiStruct, frozen=True, kw_only=True):
    """Availability of the type."""

    phase: Annotated[
        Literal["Active", "Deprecated", "Disabled"],
        doc(
            "Active types can be used. Deprecated types result in a warning. "
            "Disabled types are refused for new workloads. The phase can only move "
            "forward."
        ),
    ] = "Active"
    replacement_instance_type: Annotated[
        ShortText, doc("Type to use instead. Required if the phase is not Active.")
    ] = ""


class InstanceTypeSpec(ApiStruct, frozen=True, kw_only=True):
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    description: Annotated[Text, doc("Purpose of the type, for people.")] = ""
    resources: Annotated[InstanceTypeResources, immutable("create another instance type instead")]
    lifecycle: InstanceTypeLifecycle = InstanceTypeLifecycle()


class InstanceTypeStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    deprecated_at: Annotated[
        Time | None, doc("Time since when the type is deprecated (RFC 3339).")
    ] = None
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class InstanceType(ApiObject, frozen=True, kw_only=True):
    """An InstanceType is a size that instances can have. Operators create instance types for all
    projects.
    """

    spec: InstanceTypeSpec
    status: InstanceTypeStatus = InstanceTypeStatus()


INSTANCE_TYPE = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="InstanceType",
    plural="instancetypes",
    model=InstanceType,
    namespaced=False,
    short_names=("insttype",),
    categories=("compute",),
    selectable=selectable_fields("spec.lifecycle.phase"),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("CPU", ".spec.resources.cpu"),
        TableColumn("Memory", ".spec.resources.memory"),
        TableColumn("Phase", ".spec.lifecycle.phase"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status', wide=True),
        TableColumn("Replacement", ".spec.lifecycle.replacementInstanceType", wide=True),
        TableColumn("Display Name", ".spec.displayName", wide=True),
    ),
)

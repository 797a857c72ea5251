"""InstanceType: a size that instances can have. Kept by operators, for all projects.

Its resources never change, because quota was claimed for them; another size is another type. The
lifecycle goes one way: an Active type is offered, a Deprecated one warns and names its replacement,
a Disabled one is refused (admission/rules/instance_type.py has the rules). Quantities are those of
Kubernetes, except that zero and exponents are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import Cpu, Memory, ShortText, Text, Time, doc, immutable
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields

# What every plane offers from its first moment: processors and memory by name.
BUILT_IN_SIZES: Mapping[str, tuple[str, str]] = {
    "d1-standard-1": ("500m", "1Gi"),
    "d1-standard-2": ("1", "2Gi"),
    "d1-standard-4": ("2", "4Gi"),
    "d1-standard-8": ("4", "8Gi"),
}
# The older spelling of the same names.
_ALIAS_PREFIX = "datumcloud/"


def size_name(instance_type: str) -> str:
    """The name of the InstanceType object that a template means."""
    return instance_type.removeprefix(_ALIAS_PREFIX)


class InstanceTypeResources(ApiStruct, frozen=True, kw_only=True):
    """What an instance of this type gets."""

    cpu: Annotated[Cpu, doc("Processors, such as 2 or 500m.")]
    memory: Annotated[Memory, doc("Memory, such as 2Gi or 512Mi.")]


class InstanceTypeLifecycle(ApiStruct, frozen=True, kw_only=True):
    """Whether the type is offered."""

    phase: Annotated[
        Literal["Active", "Deprecated", "Disabled"],
        doc("Active is offered, Deprecated warns, Disabled is refused; only ever forward."),
    ] = "Active"
    replacement_instance_type: Annotated[
        ShortText, doc("The type to use instead; needed once this one is not Active.")
    ] = ""


class InstanceTypeSpec(ApiStruct, frozen=True, kw_only=True):
    display_name: Annotated[ShortText, doc("Name for people.")] = ""
    description: Annotated[Text, doc("What the type is good for.")] = ""
    resources: Annotated[InstanceTypeResources, immutable("create another instance type instead")]
    lifecycle: InstanceTypeLifecycle = InstanceTypeLifecycle()


class InstanceTypeStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    deprecated_at: Annotated[Time | None, doc("Since when it is deprecated (RFC 3339).")] = None
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


class InstanceType(ApiObject, frozen=True, kw_only=True):
    """InstanceType: a size that instances can have. Kept by operators, for all projects."""

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
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("CPU", ".spec.resources.cpu"),
        Column("Memory", ".spec.resources.memory"),
        Column("Phase", ".spec.lifecycle.phase"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status', wide=True),
        Column("Replacement", ".spec.lifecycle.replacementInstanceType", wide=True),
        Column("Display Name", ".spec.displayName", wide=True),
    ),
)

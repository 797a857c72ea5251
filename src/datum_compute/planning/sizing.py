"""How large an instance is: what its quota is claimed for, and the most that its machine may use.

The first source that says both amounts counts:
1. The limits of its containers, added up, if every one of them has both.
2. What the instance itself asks for.
3. Its instance type: an object of the plane, or one of those that always exist.
Otherwise only the instance is counted. A provider's machine is never asked.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from datum_compute.api.instance import ResourceAmounts, Runtime
from datum_compute.api.instancetype import BUILT_IN_SIZES, InstanceType, size_name
from datum_compute.api.quantities import mebibytes, millicores
from datum_compute.api.quotametrics import INSTANCES, MEMORY, VCPUS
from datum_compute.api.resourceclaim import ResourceRequest


class Size(msgspec.Struct, frozen=True):
    millicores: int
    mebibytes: int


TypeNamed = Callable[[str], InstanceType | None]


def size_of(runtime: Runtime, type_named: TypeNamed) -> Size | None:
    limits = [_both(c.resources.limits) for c in runtime.sandbox.containers]
    complete = [size for size in limits if size is not None]
    if len(complete) == len(limits):
        return Size(sum(s.millicores for s in complete), sum(s.mebibytes for s in complete))
    asked = _both(runtime.resources.requests)
    if asked is not None:
        return asked
    name = size_name(runtime.resources.instance_type)
    found = type_named(name)
    if found is not None:
        resources = found.spec.resources
        return Size(millicores(resources.cpu), mebibytes(resources.memory))
    built_in = BUILT_IN_SIZES.get(name)
    return Size(millicores(built_in[0]), mebibytes(built_in[1])) if built_in else None


def _both(amounts: ResourceAmounts) -> Size | None:
    if amounts.cpu is None or amounts.memory is None:
        return None
    return Size(millicores(amounts.cpu), mebibytes(amounts.memory))


def amounts_of(size: Size | None) -> ResourceAmounts:
    """The size in the words of the API."""
    if size is None:
        return ResourceAmounts()
    return ResourceAmounts(cpu=f"{size.millicores}m", memory=f"{size.mebibytes}Mi")


def requests_of(size: Size | None) -> list[ResourceRequest]:
    """What an instance of the size claims; one of unknown size counts as an instance only."""
    amounts = {INSTANCES.resource_type: 1}
    if size is not None:
        amounts[VCPUS.resource_type] = size.millicores
        amounts[MEMORY.resource_type] = size.mebibytes
    return [ResourceRequest(resource_type=name, amount=amount) for name, amount in amounts.items()]

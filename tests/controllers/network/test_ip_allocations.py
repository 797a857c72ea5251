"""Which events make the controller of IP allocations check a prefix."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api.compute.instance import Instance, InterfaceAddress, NetworkInterfaceStatus
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PLATFORM
from datum_compute.controllers.network.ip_allocations import CONTROLLER
from datum_compute.planning.network.prefixes import allocation_name
from datum_compute.runtime.controller import Key
from datum_compute.runtime.informer import ObjectChange
from testkit.builders import an_instance


def instance_at(address: str) -> Instance:
    given = InterfaceAddress(
        family="IPv4", address=address, prefix_length=20, gateway="10.128.16.1"
    )
    instance = an_instance(0)
    interfaces = [NetworkInterfaceStatus(addresses=[given])]
    status = msgspec.structs.replace(instance.status, network_interfaces=interfaces)
    return msgspec.structs.replace(instance, status=status)


def keys_of(change: ObjectChange[Instance]) -> list[Key]:
    view: Any = None
    edges = [edge for edge in CONTROLLER.edges if edge.kind is INSTANCE and edge.to_keys]
    return [key for edge in edges if edge.to_keys for key in edge.to_keys(view, change)]


def test_the_removal_of_the_last_instance_checks_the_prefix_of_its_address() -> None:
    change = ObjectChange(instance_at("10.128.16.2"), None)
    assert keys_of(change) == [Key(PLATFORM, Ref("", allocation_name("10.128.16.0/20")))]


@pytest.mark.parametrize("old", [None, instance_at("10.128.16.2")], ids=["new", "changed"])
def test_an_instance_that_exists_checks_no_prefix(old: Instance | None) -> None:
    assert keys_of(ObjectChange(old, instance_at("10.128.16.2"))) == []

"""Two instances never share an address, also after deletions and restarts of the process."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from datum_compute.api.compute.deployment import NetworkAttachment
from datum_compute.api.compute.instance import Instance, InstanceStatus
from datum_compute.api.compute.server import Server, ServerSpec
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta.objects import ApiObject, ObjectMeta, Ref, ref_of
from datum_compute.api.planes import cell_plane
from datum_compute.controllers.address_allocator import AddressAllocator
from datum_compute.planning.network.addresses import addresses_of, block_of, interface_of
from testkit.builders import an_attachment, an_instance

T = TypeVar("T", bound=ApiObject)

TINY = "10.128.0.0/29"
SLOTS = st.integers(0, 7)


class Rows(Generic[T]):
    def __init__(self) -> None:
        self.rows: dict[Ref, T] = {}

    def get(self, ref: Ref) -> T | None:
        return self.rows.get(ref)

    def all(self) -> list[T]:
        return list(self.rows.values())

    def put(self, obj: T) -> None:
        self.rows[ref_of(obj)] = obj

    def remove(self, ref: Ref) -> T | None:
        return self.rows.pop(ref, None)


class Shelf:
    """A cell view with fixed contents instead of a plane."""

    plane = cell_plane("dfw")

    def __init__(self) -> None:
        self.instances: Rows[Instance] = Rows()
        self.servers: Rows[Server] = Rows()

    def read(self, kind: object) -> object:
        return {INSTANCE.kind: self.instances, SERVER.kind: self.servers}[kind.kind]  # type: ignore[attr-defined]


class AnyTraffic(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.attachment: NetworkAttachment = an_attachment(TINY, "10.128.0.1")
        self.shelf = Shelf()
        self.book = AddressAllocator()
        self.promised: dict[str, list[str]] = {}
        self.incarnations = 0

    @rule(slot=SLOTS)
    def an_instance_is_made(self, slot: int) -> None:
        instance = an_instance(slot)
        ref = Ref("default", instance.metadata.name)
        if self.shelf.instances.get(ref) is None and self.shelf.servers.get(ref) is None:
            self.incarnations += 1
            uid = f"uid-{self.incarnations}"
            metadata = msgspec.structs.replace(instance.metadata, uid=uid)
            self.shelf.instances.put(msgspec.structs.replace(instance, metadata=metadata))

    @rule(slot=SLOTS)
    def allocate(self, slot: int) -> None:
        instance = self.found(slot)
        if instance is None or instance.status.network_interfaces:
            return
        chosen = self.book.allocate(self.shelf, self.attachment, instance)  # type: ignore[arg-type]
        if chosen is None:
            assert len(self.held()) == block_of(TINY).count, "refused while one is free"
        else:
            self.promised[instance.metadata.uid] = chosen

    @rule(slot=SLOTS)
    def the_promise_is_recorded_and_a_server_made(self, slot: int) -> None:
        instance = self.found(slot)
        chosen = self.promised.get(instance.metadata.uid) if instance is not None else None
        if instance is None or chosen is None:
            return
        interfaces = [interface_of(instance, self.attachment, chosen)]
        status = InstanceStatus(network_interfaces=interfaces)
        self.shelf.instances.put(msgspec.structs.replace(instance, status=status))
        containers = instance.spec.runtime.sandbox.containers
        spec = ServerSpec(
            instance_type="x", template_hash="h", containers=containers, interfaces=interfaces
        )
        metadata = ObjectMeta(name=instance.metadata.name, namespace="default")
        self.shelf.servers.put(Server(metadata=metadata, spec=spec))

    @rule(slot=SLOTS)
    def delete_instance_but_not_its_server(self, slot: int) -> None:
        self.forget(slot)

    @rule(slot=SLOTS)
    def the_instance_goes_with_its_server(self, slot: int) -> None:
        self.forget(slot)
        self.shelf.servers.remove(Ref("default", an_instance(slot).metadata.name))

    @rule()
    def the_process_starts_again(self) -> None:
        """Addresses that were not recorded are lost with the process."""
        self.book = AddressAllocator()
        self.promised = {
            i.metadata.uid: addresses_of(i.status.network_interfaces)
            for i in self.shelf.instances.all()
            if i.status.network_interfaces
        }

    @invariant()
    def addresses_are_unique(self) -> None:
        held = self.held()
        assert len(held) == len(set(held))

    def found(self, slot: int) -> Instance | None:
        return self.shelf.instances.get(Ref("default", an_instance(slot).metadata.name))

    def forget(self, slot: int) -> None:
        gone = self.shelf.instances.remove(Ref("default", an_instance(slot).metadata.name))
        if gone is not None:
            self.promised.pop(gone.metadata.uid, None)

    def held(self) -> list[str]:
        """Return the addresses promised to instances and those of servers without an instance."""
        promised = [address for chosen in self.promised.values() for address in chosen]
        left = [
            address
            for server in self.shelf.servers.all()
            for address in addresses_of(server.spec.interfaces)
        ]
        return [*promised, *(address for address in left if address not in promised)]


AnyTraffic.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyTraffic = AnyTraffic.TestCase

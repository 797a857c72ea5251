"""Which connections are served, closed and refused at the limits."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from datum_compute.api.errors import TooManyRequests
from datum_compute.server.http.connection_table import ConnectionTable, Slot
from datum_compute.server.http.send_budget import PortLimits, fit_to_file_limit


@dataclass
class Client:
    is_idle: bool = True
    closed: str = ""

    def shed(self, reason: str) -> None:
        self.closed = reason


@dataclass
class World:
    limits: PortLimits = field(default_factory=PortLimits)
    reports: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = ConnectionTable(self.limits, lambda *report: self.reports.append(report))

    def connect(self, address: str = "10.0.0.1", *, idle: bool = True) -> tuple[Client, Slot]:
        client = Client(idle)
        slot = self.table.admit(address, client)
        assert slot is not None, "refused"
        return client, slot

    def connect_as(self, user: str, *, idle: bool = False, reserved: bool = False) -> Client:
        client, slot = self.connect(idle=idle)
        self.table.identify(slot, user, reserved=reserved)
        return client


def test_at_the_limit_of_an_address_its_oldest_idle_connection_is_closed() -> None:
    world = World(PortLimits(anonymous_connections_per_address_max=2))
    busy, _ = world.connect(idle=False)
    idle, _ = world.connect()
    other, _ = world.connect("10.0.0.2")
    newest, _ = world.connect()
    assert [client.closed for client in (busy, idle, other, newest)] == ["", "address", "", ""]
    assert world.reports == [("address", "10.0.0.1")]


def test_without_an_idle_connection_a_new_one_is_refused() -> None:
    world = World(PortLimits(anonymous_connections_per_address_max=1))
    world.connect(idle=False)
    assert world.table.admit("10.0.0.1", Client()) is None


def test_users_behind_one_address_do_not_share_its_limit() -> None:
    world = World(PortLimits(anonymous_connections_per_address_max=1))
    clients = [world.connect_as(f"user-{number}") for number in range(20)]
    assert not any(client.closed for client in clients)
    assert world.reports == []
    assert world.table.count_by_state() == {"anonymous": 0, "user": 20, "reserved": 0}


def test_many_addresses_share_the_limit_of_anonymous_connections() -> None:
    world = World(PortLimits(anonymous_connections_max=3))
    clients = [world.connect(f"10.0.0.{number}")[0] for number in range(5)]
    assert [client.closed for client in clients] == ["anonymous", "anonymous", "", "", ""]


def test_all_addresses_of_an_ipv6_network_are_one_client() -> None:
    world = World(PortLimits(anonymous_connections_per_address_max=1))
    first, _ = world.connect("2001:db8::1")
    world.connect("2001:db8::2")
    assert first.closed == "address"
    mapped, _ = world.connect("::ffff:10.0.0.7")
    world.connect("10.0.0.7")
    assert mapped.closed == "address"


def test_a_user_at_its_limit_loses_its_oldest_idle_connection() -> None:
    world = World(PortLimits(connections_per_user_max=2))
    watching, idle = world.connect_as("eve"), world.connect_as("eve", idle=True)
    other = world.connect_as("ada", idle=True)
    world.connect_as("eve")
    assert (watching.closed, idle.closed, other.closed) == ("", "user", "")
    with pytest.raises(TooManyRequests, match='user "eve" has 2 open connections'):
        world.connect_as("eve")


def test_a_full_server_closes_idle_anonymous_connections_first() -> None:
    world = World(PortLimits(connections_max=3, reserved_connections=1))
    user = world.connect_as("ada", idle=True)
    first, _ = world.connect()
    world.connect()
    world.connect()
    assert (user.closed, first.closed) == ("", "total")


def test_a_full_server_closes_idle_connections_of_the_largest_user_next() -> None:
    world = World(PortLimits(connections_max=3, reserved_connections=1))
    ada = world.connect_as("ada", idle=True)
    eve = [world.connect_as("eve", idle=True) for _ in range(2)]
    world.connect_as("bob")
    assert (ada.closed, eve[0].closed, eve[1].closed) == ("", "total", "")


def test_reserved_connections_are_for_controllers_cells_and_operators() -> None:
    world = World(PortLimits(connections_max=3, reserved_connections=2))
    flood = [world.connect_as("eve") for _ in range(3)]
    with pytest.raises(TooManyRequests, match="the server has 3 open connections"):
        world.connect_as("eve")
    # That connection is closed after the response.
    world = World(PortLimits(connections_max=3, reserved_connections=2))
    flood = [world.connect_as("eve") for _ in range(3)]
    manager = world.connect_as("system:compute-manager", reserved=True)
    cell = world.connect_as("system:cell:dfw", reserved=True)
    assert not any(client.closed for client in (*flood, manager, cell))
    assert world.table.admit("10.0.0.9", Client()) is None


def test_a_reserved_connection_is_never_closed_for_another_one() -> None:
    world = World(PortLimits(connections_max=2, reserved_connections=2))
    manager = world.connect_as("system:compute-manager", idle=True, reserved=True)
    eve = [world.connect_as("eve", idle=True) for _ in range(5)]
    assert not manager.closed
    assert [client.closed for client in eve].count("total") == 3


def test_released_connections_do_not_count() -> None:
    world = World(PortLimits(connections_max=2, anonymous_connections_per_address_max=2))
    for user in ("", "ada", "system:operator") * 5:
        _, slot = world.connect(idle=False)
        if user:
            world.table.identify(slot, user, reserved=user.startswith("system:"))
        world.table.release(slot)
        world.table.release(slot)
    assert world.table.count_by_state() == {"anonymous": 0, "user": 0, "reserved": 0}
    assert world.reports == []


def test_without_file_descriptors_the_user_with_most_connections_loses_one() -> None:
    world = World()
    manager = [world.connect_as("system:compute-manager", reserved=True) for _ in range(9)]
    anonymous, _ = world.connect()
    busy, idle = world.connect_as("eve"), world.connect_as("eve", idle=True)
    assert world.table.shed_one("files")
    assert (idle.closed, busy.closed, anonymous.closed) == ("files", "", "")
    assert world.table.shed_one("files")
    assert (busy.closed, anonymous.closed) == ("", "files")
    assert world.table.shed_one("files")
    assert not world.table.shed_one("files")
    assert not any(client.closed for client in manager)


def test_without_file_descriptors_connections_are_closed_although_none_is_idle() -> None:
    world = World()
    watching = [world.connect_as("eve") for _ in range(3)]
    newcomer, _ = world.connect()
    assert world.table.shed_one("files")
    assert [client.closed for client in watching] == ["files", "", ""]
    assert not newcomer.closed


@pytest.mark.parametrize("files_max", [64, 1024, 4096, 20_000, 65_536])
def test_connections_leave_file_descriptors_for_everything_else(files_max: int) -> None:
    limits = fit_to_file_limit(PortLimits(), files_max)
    used = limits.connections_max + limits.reserved_connections
    assert limits.connections_max > 0
    assert limits.reserved_connections > 0
    assert files_max - used >= min(256, files_max // 4)

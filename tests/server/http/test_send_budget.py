"""Which connections are closed when clients do not read."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from datum_compute.server.http.send_budget import TOTAL_LIMIT, USER_LIMIT, SendAccount, SendBudget


@dataclass
class Client:
    """A connection that holds ``unsent`` bytes."""

    name: str
    unsent: int = 0
    closed: str = ""

    def measure_unsent(self) -> int:
        return self.unsent

    def shed(self, reason: str) -> None:
        self.closed = reason
        self.unsent = 0


@dataclass
class World:
    per_user_max: int = 100
    total_max: int = 1000
    now_s: float = 0.0
    clients: list[Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = SendBudget(self.per_user_max, self.total_max, lambda: self.now_s)

    def connect(self, user: str, *, reserved: bool = False) -> tuple[Client, SendAccount]:
        self.now_s += 1
        client = Client(f"{user}-{len(self.clients)}")
        self.clients.append(client)
        account = self.budget.open_account(client)
        account.set_user(user, is_reserved=reserved)
        return client, account

    def hold(self, user: str, size_bytes: int, *, reserved: bool = False) -> Client:
        """A new connection whose client does not read that much."""
        client, account = self.connect(user, reserved=reserved)
        self.write(client, account, size_bytes)
        return client

    def write(self, client: Client, account: SendAccount, size_bytes: int) -> None:
        self.now_s += 1
        client.unsent += size_bytes
        account.record(client.unsent)

    def closed(self) -> list[str]:
        return [client.name for client in self.clients if client.closed]


def test_at_the_limit_of_a_user_its_slowest_connection_is_closed() -> None:
    world = World()
    for _ in range(3):
        world.hold("eve", 40)
    other = world.hold("ada", 90)
    assert world.closed() == ["eve-0"]
    assert world.clients[0].closed == USER_LIMIT
    assert world.budget.user_bytes("eve") == 80
    assert not other.closed


def test_a_client_that_has_read_since_is_not_the_slowest() -> None:
    world = World()
    first, account = world.connect("eve")
    world.write(first, account, 40)
    world.hold("eve", 40)
    world.now_s += 1
    first.unsent = 20
    account.record(20)
    world.hold("eve", 45)
    assert world.closed() == ["eve-1"]


def test_what_was_read_meanwhile_is_measured_before_anything_is_closed() -> None:
    world = World()
    first = world.hold("eve", 60)
    first.unsent = 0  # not recorded yet
    world.hold("eve", 60)
    assert world.closed() == []
    assert world.budget.user_bytes("eve") == 60


def test_at_the_total_limit_the_user_who_holds_most_loses_its_slowest_connection() -> None:
    world = World(per_user_max=100, total_max=150)
    world.hold("ada", 20)
    world.hold("eve", 40)
    world.hold("eve", 40)
    world.hold("bob", 60)
    assert world.closed() == ["eve-1"]
    assert world.clients[1].closed == TOTAL_LIMIT


def test_connections_of_controllers_are_closed_last() -> None:
    world = World(per_user_max=100, total_max=150)
    world.hold("system:compute-manager", 120, reserved=True)
    world.hold("eve", 20)
    world.hold("eve", 20)
    assert world.closed() == ["eve-1"]


def test_one_response_may_be_larger_than_the_limit_of_its_user() -> None:
    world = World()
    world.hold("ada", 400)
    assert world.closed() == []
    world.hold("ada", 10)
    assert world.closed() == ["ada-0"]


def test_a_connection_counts_for_the_user_of_its_last_request() -> None:
    world = World()
    client, account = world.connect("ada")
    world.write(client, account, 50)
    account.set_user("eve", is_reserved=False)
    assert (world.budget.user_bytes("ada"), world.budget.user_bytes("eve")) == (0, 50)


def test_what_users_hold_never_exceeds_the_limits() -> None:
    random = Random(18)
    world = World(per_user_max=1000, total_max=2500)
    opened: list[tuple[str, Client, SendAccount]] = []
    for _ in range(2000):
        user = random.choice("abcdef")
        if random.random() < 0.2 or not opened:
            opened.append((user, *world.connect(user)))
        _, client, account = random.choice(opened)
        if client.closed:
            continue
        if random.random() < 0.2:
            client.unsent //= 2
            account.record(client.unsent)
        else:
            world.write(client, account, random.randrange(200))
        for name in "abcdef":
            held = [c.unsent for user, c, _ in opened if user == name and c.unsent]
            assert sum(held) <= 1000 or len(held) == 1
        assert world.budget.total_bytes <= 2500
        assert world.budget.total_bytes == sum(account.size_bytes for _, _, account in opened)
    assert len(world.closed()) > 10

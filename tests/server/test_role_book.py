"""The roles of a plane are those that the store holds now, whatever has happened to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from datum_compute.api.codec import encode
from datum_compute.api.plane import PlaneName
from datum_compute.server.access.roles import RESOURCES, RoleBook
from datum_compute.store.journal import ObjectKey
from datum_compute.store.memory import MemoryJournal
from datum_compute.store.store import Store
from datum_compute.testing.running_store import running

PLANE = PlaneName("project/a")
ROLES = "clusterroles.rbac.authorization.k8s.io"


class Book:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.told: list[PlaneName] = []
        self.book = RoleBook(store, (), self.told.append)

    async def write(self, name: str) -> None:
        await self.store.put(PLANE, ObjectKey(ROLES, "", name), 0, lambda _version: role(name))

    def names(self) -> list[str] | None:
        roles = self.book.of(PLANE)
        return sorted(roles.cluster_roles) if roles is not None else None


def role(name: str) -> bytes:
    return encode({"metadata": {"name": name}, "rules": []})


@pytest.fixture
async def book() -> AsyncIterator[Book]:
    async with running(MemoryJournal()) as store:
        await store.create_plane(PLANE)
        yield Book(store)


async def test_a_role_counts_as_soon_as_it_can_be_seen(book: Book) -> None:
    assert book.names() == []
    await book.write("a")
    assert book.names() == ["a"]
    assert book.told == [PLANE]


async def test_what_stays_as_it_is_is_read_once(book: Book) -> None:
    before = book.book.of(PLANE)
    await book.store.put(PLANE, ObjectKey("configmaps", "b", "c"), 0, lambda _version: role("c"))
    assert book.book.of(PLANE) is before


async def test_a_plane_that_is_gone_has_none_and_the_next_of_its_name_only_its_own(
    book: Book,
) -> None:
    await book.write("a")
    assert book.names() == ["a"]
    await book.store.delete_plane(PLANE)
    assert book.names() is None
    await book.store.create_plane(PLANE)
    assert book.names() == []
    await book.write("b")
    assert book.names() == ["b"]


@pytest.mark.parametrize("resource", RESOURCES)
async def test_a_history_that_is_forgotten_hides_no_later_change(book: Book, resource: str) -> None:
    await book.write("a")
    assert book.names() == ["a"]
    book.store.forget(PLANE, resource)
    assert book.names() == ["a"]
    await book.write("b")
    assert book.names() == ["a", "b"]

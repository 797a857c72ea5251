"""The RBAC cache equals the roles and bindings in the store, and decodes only changed objects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from datum_compute.api.meta.codec import JsonObject, decode_as, encode
from datum_compute.api.planes import PlaneName
from datum_compute.server.access import rbac_objects as rolesource
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User
from datum_compute.server.access.rbac import (
    CACHE_ENTRIES_MAX,
    CACHE_KEY_CHARACTERS_MAX,
    RESOURCES,
    RbacCache,
)
from datum_compute.store.journal import MemoryJournal, ObjectKey
from datum_compute.store.store import Store
from testkit.conformance.plane import open_store

PLANE = PlaneName("project/a")
ROLES = "clusterroles.rbac.authorization.k8s.io"


class Book:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.reported: list[PlaneName] = []
        self.book = RbacCache(store, (), self.reported.append)

    async def write(self, name: str) -> None:
        await self.store.put(PLANE, ObjectKey(ROLES, "", name), 0, lambda _version: role(name))

    def names(self) -> list[str] | None:
        roles = self.book.get(PLANE)
        return sorted(roles.cluster_roles) if roles is not None else None


def role(name: str) -> bytes:
    return encode({"metadata": {"name": name}, "rules": []})


@pytest.fixture
async def book() -> AsyncIterator[Book]:
    async with open_store(MemoryJournal()) as store:
        await store.create_plane(PLANE)
        yield Book(store)


async def test_a_role_applies_as_soon_as_it_is_readable(book: Book) -> None:
    assert book.names() == []
    await book.write("a")
    assert book.names() == ["a"]
    assert book.reported == [PLANE]


async def test_unchanged_roles_are_read_once(book: Book) -> None:
    before = book.book.get(PLANE)
    await book.store.put(PLANE, ObjectKey("configmaps", "b", "c"), 0, lambda _version: role("c"))
    assert book.book.get(PLANE) is before


async def test_a_deleted_plane_has_no_roles_and_a_recreated_one_only_its_own(
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
async def test_changes_are_read_after_the_watch_of_the_cache_was_closed(
    book: Book, resource: str
) -> None:
    await book.write("a")
    assert book.names() == ["a"]
    book.store.close_watches(PLANE, resource)
    assert book.names() == ["a"]
    await book.write("b")
    assert book.names() == ["a", "b"]


# --- counted work


ROLE_KEY = "roles.rbac.authorization.k8s.io"
BINDING_KEY = "rolebindings.rbac.authorization.k8s.io"
GET = Attributes("get", "", "secrets", "", "default", "a")


def ann(*groups: str) -> User:
    return User("ann", groups, frozenset({PLANE}))


def secrets_rule(*names: str) -> JsonObject:
    found: JsonObject = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
    return {**found, "resourceNames": list(names)} if names else found


async def store_object(book: Book, resource: str, name: str, **content: object) -> None:
    body = encode({"metadata": {"name": name}, **content})
    key = ObjectKey(resource, "default", name)
    old = book.store.get(PLANE, key)
    await book.store.put(PLANE, key, old.version if old else 0, lambda _version: body)


async def bind(book: Book, name: str, role_name: str, subjects: list[JsonObject]) -> None:
    reference = {"kind": "Role", "name": role_name}
    await store_object(book, BINDING_KEY, name, roleRef=reference, subjects=subjects)


async def test_only_changed_objects_are_decoded_again(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []

    def count(body: bytes, model: type[object]) -> object:
        decoded.append(body)
        return decode_as(body, model)

    monkeypatch.setattr(rolesource, "decode_as", count)
    for number in range(20):
        await store_object(book, ROLE_KEY, f"r{number}", rules=[secrets_rule()])
        await bind(book, f"b{number}", f"r{number}", [{"kind": "User", "name": f"u{number}"}])
    book.book.get(PLANE)
    assert len(decoded) == 40
    await bind(book, "b1", "r1", [{"kind": "User", "name": "ann"}])
    roles = book.book.get(PLANE)
    assert len(decoded) == 41
    assert roles is not None
    assert roles.allows(ann(), GET)


async def test_an_invalid_object_grants_nothing_and_is_decoded_once(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []

    def count(body: bytes, model: type[object]) -> object:
        decoded.append(body)
        return decode_as(body, model)

    monkeypatch.setattr(rolesource, "decode_as", count)
    await store_object(book, ROLE_KEY, "bad", rules="none")
    book.book.get(PLANE)
    await store_object(book, ROLE_KEY, "good", rules=[])
    roles = book.book.get(PLANE)
    assert roles is not None
    assert list(roles.roles) == [("default", "good")]
    assert len(decoded) == 2


async def test_equal_subjects_hold_one_reference_to_the_rules_of_the_role(book: Book) -> None:
    rules = [secrets_rule(f"n{number}") for number in range(1500)]
    await store_object(book, ROLE_KEY, "r", rules=rules)
    subjects = [{"kind": "User", "name": "ann"}, {"kind": "Group", "name": "g"}] * 750
    await bind(book, "b", "r", subjects)
    await bind(book, "c", "r", subjects)
    roles = book.book.get(PLANE)
    assert roles is not None
    assert [len(binding.subjects) for binding in roles.bindings["default"]] == [2, 2]
    (held,) = roles._cached_roles(ann("g"), "default", cache=True)
    assert held is roles.roles["default", "r"]
    assert len(roles.rules_of(ann("g"), "default")) == 1500


async def test_the_cache_has_no_long_keys_and_no_copies_of_names(book: Book) -> None:
    await store_object(book, ROLE_KEY, "r", rules=[secrets_rule("a", "b")])
    await bind(book, "b", "r", [{"kind": "User", "name": "ann"}])
    roles = book.book.get(PLANE)
    assert roles is not None
    assert roles.allows(ann(), GET, cache=False)
    assert roles.allows(ann(*(f"group-{number}" for number in range(200))), GET)
    assert not roles.allows(ann(), Attributes("get", "", "x" * CACHE_KEY_CHARACTERS_MAX))
    assert not roles.allows(ann(), Attributes("get", path="/a", namespace="n" * 2000))
    assert not roles._allowed_names
    assert [key[2] for key in roles._held] == [""]
    assert roles.allows(ann(), GET)
    ((names,),) = [sets for sets in roles._allowed_names.values() if sets]
    assert names is roles.roles["default", "r"][0].names


async def test_the_cache_has_a_limited_number_of_entries(book: Book) -> None:
    roles = book.book.get(PLANE)
    assert roles is not None
    for number in range(CACHE_ENTRIES_MAX + 10):
        roles.allows(ann(), Attributes("get", "", "secrets", "", f"n{number}"))
    assert max(len(roles._allowed_names), len(roles._held)) <= CACHE_ENTRIES_MAX

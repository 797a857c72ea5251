"""The initial objects of a plane, the registration of cells, and expired join tokens."""

from __future__ import annotations

import pytest

from datum_compute.api import labels
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CLUSTER, CLUSTER_ROLE, INSTANCE_TYPE, JOIN_TOKEN, NAMESPACE
from datum_compute.api.membership import JoinToken, JoinTokenSpec
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, cell_plane, project_plane
from datum_compute.planes.bootstrap import (
    JOIN_TOKEN_KEPT_S,
    ensure_cells,
    ensure_plane,
    expire_join_tokens,
)
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

KUBERNETES = {"default", "kube-system", "kube-public", "kube-node-lease"}


@pytest.mark.parametrize(
    ("plane", "expected"),
    [
        (PLATFORM, KUBERNETES),
        (project_plane("shop"), KUBERNETES | {"milo-system"}),
        (HUB, KUBERNETES | {"karmada-system", "karmada-cluster"}),
        (cell_plane("dfw"), KUBERNETES),
    ],
)
def test_each_plane_has_its_namespaces_roles_and_instance_types(
    plane: PlaneName, expected: set[str]
) -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> None:
        client = await planes.create(plane)
        await ensure_plane(client, plane)
        namespaces = (await client.list(NAMESPACE)).items
        assert {n.metadata.name for n in namespaces} == expected
        defaults = [
            n.metadata.name for n in namespaces if labels.PROJECT_DEFAULT in n.metadata.labels
        ]
        assert defaults == (["default"] if plane == project_plane("shop") else [])
        types = {t.metadata.name: t for t in (await client.list(INSTANCE_TYPE)).items}
        assert types["d1-standard-2"].spec.resources.memory == "2Gi"
        assert (await client.list(CLUSTER_ROLE)).items

    with_planes(test)


def test_a_second_start_keeps_changed_instance_types_and_writes_nothing() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> None:
        client = await planes.create(HUB)
        await ensure_plane(client, HUB)
        size = Ref("", "d1-standard-2")
        await client.patch(INSTANCE_TYPE, size, {"spec": {"displayName": "medium"}})
        before = planes.store.version(HUB)
        await ensure_plane(client, HUB)
        assert planes.store.version(HUB) == before
        assert (await client.get(INSTANCE_TYPE, size)).spec.display_name == "medium"

    with_planes(test)


def test_no_request_is_sent_for_objects_that_are_known_to_exist() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        client = await planes.create(HUB)
        await ensure_plane(client, HUB)
        creates: list[str] = []

        async def record(request: Request) -> Response | None:
            if request.method == "POST":
                creates.append(request.path)
            return None

        planes.intercept = record
        await ensure_plane(client, HUB, lambda _kind, _ref: True)
        return creates

    assert with_planes(test) == []


def test_a_cell_is_registered_with_its_city_and_the_namespace_of_its_works() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub = await planes.create(HUB)
        for _ in range(2):
            await ensure_cells(hub, [cell_plane("dfw")])
        (cluster,) = (await hub.list(CLUSTER)).items
        assert cluster.metadata.labels == {labels.TOPOLOGY_CITY: "DFW"}
        assert cluster.spec.api_endpoint == "/planes/cells/dfw"
        assert [n.metadata.name for n in (await hub.list(NAMESPACE)).items] == ["karmada-es-dfw"]

    with_planes(test)


def test_join_tokens_are_deleted_a_day_after_they_expire() -> None:
    now_s = 1_800_000_000.0

    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        hub = await planes.create(HUB)
        for name, expired_s in (
            ("valid", -60.0),
            ("expired", 60.0),
            ("kept", JOIN_TOKEN_KEPT_S),
            ("old", JOIN_TOKEN_KEPT_S + 1),
        ):
            spec = JoinTokenSpec(token_hash="0" * 64, expires_at=timestamp(now_s - expired_s))
            await hub.create(JOIN_TOKEN, JoinToken(metadata=ObjectMeta(name=name), spec=spec))
        await expire_join_tokens(hub, now_s)
        return sorted(t.metadata.name for t in (await hub.list(JOIN_TOKEN)).items)

    assert with_planes(test) == ["expired", "kept", "valid"]

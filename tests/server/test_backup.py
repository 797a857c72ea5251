"""``GET /backup`` returns all planes at one version, for cluster administrators."""

from __future__ import annotations

import pytest

from datum_compute.api.core import ConfigMap
from datum_compute.api.errors import ApiError, Forbidden
from datum_compute.api.kinds import CONFIG_MAP
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import HUB, PLATFORM, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.planes.roles import MANAGER_USER, OPERATOR_USER, admin_user
from datum_compute.server.access.authentication import EVERY_PLANE, User
from datum_compute.store.dump import decode_dump
from tests.app.running_platform import FIRST, Running, create_project, delete_project, on_a_platform


def as_user(running: Running, name: str, plane: str = PLATFORM) -> Client:
    user = User(name, (), frozenset({EVERY_PLANE}))

    async def dispatch(request):  # type: ignore[no-untyped-def]
        return await running.platform.server.dispatch_as(user, request)

    prefix = path_prefix(plane)  # type: ignore[arg-type]
    return Client(InProcessTransport(dispatch), prefix=prefix, token="", agent="test")


def test_a_backup_equals_the_content_of_the_disk() -> None:
    async def body(running: Running) -> None:
        await create_project(running, "gone")
        await delete_project(running, await create_project(running, "going"))
        answer = await as_user(running, admin_user(PLATFORM)).get_bytes("/backup")
        assert decode_dump(answer) == await running.disk.copy().load()

    on_a_platform(body)


def test_a_later_write_is_not_part_of_the_backup() -> None:
    async def body(running: Running) -> None:
        before = running.platform.store.snapshot_all()
        made = ConfigMap(metadata=ObjectMeta(name="later", namespace="default"))
        await running.client(FIRST).create(CONFIG_MAP, made)
        after = running.platform.store.snapshot_all()
        assert len(after[FIRST].objects) > len(before[FIRST].objects)
        assert after[FIRST].version > before[FIRST].version

    on_a_platform(body)


@pytest.mark.parametrize("name", [MANAGER_USER, OPERATOR_USER, admin_user(FIRST), "other"])
def test_a_backup_is_forbidden_for_other_users(name: str) -> None:
    async def body(running: Running) -> None:
        with pytest.raises(Forbidden):
            await as_user(running, name).get_bytes("/backup")

    on_a_platform(body)


@pytest.mark.parametrize("plane", [HUB, FIRST])
def test_a_backup_is_not_served_on_other_planes(plane: str) -> None:
    async def body(running: Running) -> None:
        with pytest.raises(ApiError) as refused:
            await as_user(running, admin_user(plane), plane).get_bytes("/backup")  # type: ignore[arg-type]
        assert refused.value.code in (403, 404)

    on_a_platform(body)

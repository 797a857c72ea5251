"""``GET /backup``: all planes as of one moment, for those who may do everything."""

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


def test_it_holds_what_a_load_of_the_disk_would_find() -> None:
    async def body(running: Running) -> None:
        await create_project(running, "gone")
        await delete_project(running, await create_project(running, "going"))
        answer = await as_user(running, admin_user(PLATFORM)).fetch("/backup")
        assert decode_dump(answer) == await running.disk.copy().load()

    on_a_platform(body)


def test_a_write_that_comes_later_is_not_in_it() -> None:
    async def body(running: Running) -> None:
        before = running.platform.store.snapshot_all()
        made = ConfigMap(metadata=ObjectMeta(name="later", namespace="default"))
        await running.client(FIRST).create(CONFIG_MAP, made)
        after = running.platform.store.snapshot_all()
        assert len(after[FIRST].objects) > len(before[FIRST].objects)
        assert after[FIRST].version > before[FIRST].version

    on_a_platform(body)


@pytest.mark.parametrize("name", [MANAGER_USER, OPERATOR_USER, admin_user(FIRST), "somebody"])
def test_nobody_else_gets_it(name: str) -> None:
    async def body(running: Running) -> None:
        with pytest.raises(Forbidden):
            await as_user(running, name).fetch("/backup")

    on_a_platform(body)


@pytest.mark.parametrize("plane", [HUB, FIRST])
def test_it_is_not_there_on_other_planes_of_the_process(plane: str) -> None:
    async def body(running: Running) -> None:
        with pytest.raises(ApiError) as refused:
            await as_user(running, admin_user(plane), plane).fetch("/backup")  # type: ignore[arg-type]
        assert refused.value.code in (403, 404)

    on_a_platform(body)

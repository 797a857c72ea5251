"""Containers are created with an init process if the engine has one; errors show no secrets."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from datum_compute.api.compute.instance import Container
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.app.container_host import LogFiles, VolumeDirectories
from datum_compute.drivers.containers.container_spec import (
    INIT,
    INIT_MISSING,
    ContainerOwner,
    build_plan,
)
from datum_compute.drivers.containers.engine import (
    REQUEST_TIMEOUT_S,
    EngineError,
    Query,
)
from datum_compute.drivers.containers.images import ImageInfo
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.operations import (
    PATH_STAT,
    ContainerOperations,
    hide_folders,
    is_init_missing,
)
from datum_compute.drivers.driver import PermanentError
from tests.drivers.containers.memory_engine import MemoryEngine

OWNER = ContainerOwner("platform", "dfw")
ID = "ns/web-0/uid"
IMAGE = ImageInfo("sha256:id", "sha256:digest", ("entry",), ("cmd",))


def a_container(name: str = "app", **fields: Any) -> Container:
    return Container(name=name, image="web:1", **fields)


def a_spec(*containers: Container, **fields: Any) -> ServerSpec:
    return ServerSpec(instance_type="d1", template_hash="h", containers=list(containers), **fields)


@pytest.mark.parametrize(
    ("info", "is_missing"),
    [
        ({"InitBinary": "", "InitCommit": {"ID": "", "Expected": ""}}, False),  # podman, always
        ({"InitBinary": "docker-init", "InitCommit": {"ID": "de40ad0"}}, False),
        ({"InitBinary": "docker-init", "InitCommit": {"ID": ""}}, False),  # built without a commit
        ({"InitBinary": "docker-init", "InitCommit": {"ID": "N/A"}}, True),
        ({}, False),
    ],
)
def test_docker_reports_that_its_init_program_is_missing(info: Any, is_missing: bool) -> None:
    assert is_init_missing(info) is is_missing


class InitEngine(MemoryEngine):
    """An engine that reports whether it has an init program, and records created containers."""

    def __init__(self) -> None:
        super().__init__(OWNER)
        self.has_init = False
        self.created: list[Any] = []
        self.failures = 0  # requests to create a container that fail, of any kind
        self.refuses_init = False  # like podman without its init program
        self.files: dict[str, JsonObject] = {"/bin/web": {"mode": 0o755}}

    def _create(self, body: JsonObject) -> JsonObject:
        has_init = body["HostConfig"]["Init"]
        if self.failures or (has_init and self.refuses_init):
            self.failures = max(0, self.failures - 1)
            raise EngineError(500, "it cannot be created")
        self.created.append(body)
        return {"Id": "new"}

    async def head(self, path: str, query: Query | None = None) -> Mapping[str, str]:
        stat = self.files.get(str((query or {})["path"]))
        if stat is None:
            raise EngineError(404, "no such file")
        return {PATH_STAT: base64.b64encode(encode(stat)).decode()}

    async def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        if path == "/info":
            commit = "de40ad0" if self.has_init else "N/A"
            return {"InitBinary": "docker-init", "InitCommit": {"ID": commit}}
        if path == "/containers/create":
            return self._create(body or {})
        if path.endswith("/json"):
            return {"Config": {"Env": []}}
        if method == "DELETE":
            return None
        return await super().request(method, path, query, body, timeout_s=timeout_s)


async def create(engine: InitEngine, folder: Path, program: str = "/bin/web") -> Any:
    """Create a container with an init process, and return the body of the last request."""
    archive = LogFiles(folder / "logs", lambda: 2e9)
    operations = ContainerOperations(engine, OWNER, VolumeDirectories(folder / "data"), archive)
    spec = a_spec(a_container(command=[program]))
    await operations.create(Machine(ID, build_plan(OWNER, spec, {}), spec=spec), {"app": IMAGE})
    return engine.created[-1]


DIRECTORY, SYMLINK = 1 << 31, 1 << 27


@pytest.mark.parametrize(
    ("program", "has_init"),
    [
        ("/bin/web", True),
        ("/bin/data", False),
        ("/bin", False),
        ("/bin/none", False),
        ("/bin/link", True),
        ("/bin/link-to-data", False),
        ("/bin/unknown", True),
    ],
)
async def test_a_program_that_cannot_be_run_gets_no_init_process(
    tmp_path: Path, program: str, has_init: bool
) -> None:
    """The engine then refuses to start it; an init process would start, and exit with code 1."""
    engine = InitEngine()
    engine.has_init = True
    engine.files |= {
        "/bin": {"mode": DIRECTORY | 0o755},
        "/bin/data": {"mode": 0o644},
        "/bin/link": {"mode": SYMLINK | 0o777, "linkTarget": "/bin/web"},
        "/bin/link-to-data": {"mode": SYMLINK | 0o777, "linkTarget": "/bin/data"},
        "/bin/unknown": {},
    }
    created = await create(engine, tmp_path, program)
    assert created["HostConfig"]["Init"] is has_init
    assert INIT not in created["Labels"]


async def test_one_failure_of_the_engine_does_not_mean_that_it_has_no_init_program(
    tmp_path: Path,
) -> None:
    engine = InitEngine()
    engine.has_init, engine.failures = True, 1
    created = await create(engine, tmp_path)
    assert created["HostConfig"]["Init"] is True
    assert INIT not in created["Labels"]


async def test_an_engine_that_refuses_only_init_processes_has_none(tmp_path: Path) -> None:
    engine = InitEngine()
    engine.has_init = engine.refuses_init = True
    created = await create(engine, tmp_path)
    assert created["HostConfig"]["Init"] is False
    assert created["Labels"][INIT] == INIT_MISSING


async def test_an_engine_that_creates_nothing_may_have_an_init_program(
    tmp_path: Path,
) -> None:
    engine = InitEngine()
    engine.has_init, engine.failures = True, 10
    with pytest.raises(PermanentError, match="it cannot be created"):
        await create(engine, tmp_path)
    assert engine.created == []


async def test_an_init_program_that_is_installed_later_is_used(tmp_path: Path) -> None:
    engine = InitEngine()
    archive = LogFiles(tmp_path / "logs", lambda: 2e9)
    operations = ContainerOperations(engine, OWNER, VolumeDirectories(tmp_path / "data"), archive)
    spec = a_spec(a_container(command=["/bin/web"]))

    async def create() -> Any:
        machine = Machine(ID, build_plan(OWNER, spec, {}), spec=spec)
        await operations.create(machine, {"app": IMAGE})
        return engine.created[-1]

    assert (await create())["Labels"][INIT] == INIT_MISSING
    engine.has_init = True
    assert (await create())["HostConfig"]["Init"] is True


def test_error_messages_contain_no_volume_folders() -> None:
    message = "statfs /state/data/ns-web/v/key: no such file or directory"
    shown = hide_folders(message, {"v": "/state/data/ns-web/v"})
    assert shown == "statfs (volume v)/key: no such file or directory"

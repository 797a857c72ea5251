"""The driver of a platform is selected at the first start and kept at later starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from datum_compute.api.planes import cell_plane
from datum_compute.app.driver_selection import (
    DriverChoice,
    DriverSet,
    MachineHost,
    build_machines,
    require_same_driver,
)
from datum_compute.app.environment import process_environment
from datum_compute.app.ingress_client import IngressClient
from datum_compute.app.ingress_server import CONFIGURATION_FILE
from datum_compute.app.settings.settings import local_settings
from datum_compute.app.state_directory import StateError, read_last_driver, save_driver
from datum_compute.ingress.proxy import Proxy

CELLS = (cell_plane("dfw"), cell_plane("iad"))


async def select_driver(state: Path, *flags: str) -> DriverSet:
    """Select the driver on a host without a container engine."""
    sockets = (str(state / "missing.sock"),)
    settings = local_settings(["--state-dir", str(state), *flags], {})
    host = MachineHost(state, CELLS, process_environment(), CollectorRegistry(), sockets)
    return await build_machines(settings.driver, host)


async def test_without_an_engine_instances_are_simulated(tmp_path: Path) -> None:
    found = await select_driver(tmp_path)
    assert (found.choice.driver, found.choice.reason) == (
        "simulated",
        "no container engine responds",
    )
    assert tuple(found.drivers) == CELLS
    assert found.publishing_controllers == ()


async def test_the_error_without_an_engine_names_the_socket_and_the_flags(tmp_path: Path) -> None:
    with pytest.raises(StateError) as refused:
        await select_driver(tmp_path, "--driver", "containers")
    message = str(refused.value)
    assert "missing.sock: cannot reach the container engine: no such file or directory" in message
    assert "--driver simulated" in message
    assert "--engine" in message


async def test_the_process_that_serves_published_ports_is_kept(tmp_path: Path) -> None:
    save_driver(tmp_path, "containers", str(tmp_path / "missing.sock"))
    assert isinstance((await select_driver(tmp_path)).traffic, Proxy)
    chosen = await select_driver(tmp_path, "--ingress", "process")
    assert isinstance(chosen.traffic, IngressClient)
    (tmp_path / CONFIGURATION_FILE).write_bytes(b"{}")
    assert isinstance((await select_driver(tmp_path)).traffic, IngressClient)


async def test_the_containers_driver_is_kept_while_the_engine_does_not_answer(
    tmp_path: Path,
) -> None:
    save_driver(tmp_path, "containers", str(tmp_path / "missing.sock"))
    found = await select_driver(tmp_path)
    assert found.choice.driver == "containers"
    assert "is unreachable" in found.choice.summary
    assert len(found.endpoints.planes()) == 2
    assert found.publishing_controllers != ()
    await found.close()


async def test_the_simulated_driver_is_kept_at_the_next_start(tmp_path: Path) -> None:
    save_driver(tmp_path, "simulated", "")
    found = await select_driver(tmp_path)
    assert found.choice.driver == "simulated"
    assert found.choice.reason.startswith("as in the last run")
    assert (
        await select_driver(tmp_path, "--driver=simulated")
    ).choice.reason == "--driver=simulated"


@pytest.mark.parametrize("last", ["", "simulated"])
async def test_the_engine_flag_selects_the_containers_driver(tmp_path: Path, last: str) -> None:
    if last:
        save_driver(tmp_path, last, "")
    with pytest.raises(StateError) as refused:
        await select_driver(tmp_path, "--engine", str(tmp_path / "mine.sock"))
    assert "mine.sock: cannot reach the container engine" in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"driver": "x"}', '{"driver": 1}'])
async def test_a_damaged_driver_file_is_an_error_unless_a_flag_selects_the_driver(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "driver.json").write_text(text)
    with pytest.raises(StateError) as refused:
        await select_driver(tmp_path)
    assert "driver.json is damaged" in str(refused.value)
    assert "--driver" in str(refused.value)
    assert (await select_driver(tmp_path, "--driver=simulated")).choice.driver == "simulated"
    save_driver(tmp_path, "simulated", "")
    assert read_last_driver(tmp_path) == ("simulated", "")


def test_instances_that_run_as_containers_cannot_become_simulated(tmp_path: Path) -> None:
    simulated = DriverChoice("simulated", "--driver=simulated", "instances are simulated")
    require_same_driver(tmp_path, simulated, 2)  # the first run
    save_driver(tmp_path, "simulated", "")
    require_same_driver(tmp_path, simulated, 2)
    save_driver(tmp_path, "containers", "/run/engine.sock")
    require_same_driver(tmp_path, simulated, 0)
    require_same_driver(tmp_path, DriverChoice("containers", "", ""), 2)
    with pytest.raises(StateError, match=r"2 instances of .* run as containers"):
        require_same_driver(tmp_path, simulated, 2)

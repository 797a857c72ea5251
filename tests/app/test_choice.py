"""Which driver a platform gets, and that it keeps it."""

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
from datum_compute.app.environment import real_ports
from datum_compute.app.settings.settings import local_settings
from datum_compute.app.state_directory import StateError, remember_driver, remembered_driver

CELLS = (cell_plane("dfw"), cell_plane("iad"))


async def machines(state: Path, *flags: str) -> DriverSet:
    """On a machine without an engine."""
    usual = (str(state / "nobody.sock"),)
    settings = local_settings(["--state-dir", str(state), *flags], {})
    host = MachineHost(state, CELLS, real_ports(), CollectorRegistry(), usual)
    return await build_machines(settings.driver, host)


async def test_without_an_engine_instances_are_simulated(tmp_path: Path) -> None:
    found = await machines(tmp_path)
    assert (found.choice.driver, found.choice.reason) == (
        "simulated",
        "no container engine answers",
    )
    assert tuple(found.drivers) == CELLS
    assert found.publishing_controllers == ()


async def test_who_insists_on_containers_is_told_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StateError) as refused:
        await machines(tmp_path, "--driver", "containers")
    told = str(refused.value)
    assert "nobody.sock: the container engine does not answer: no such file or directory" in told
    assert "--driver simulated" in told
    assert "--engine" in told


async def test_instances_that_were_containers_are_never_called_running_by_pretence(
    tmp_path: Path,
) -> None:
    remember_driver(tmp_path, "containers", str(tmp_path / "nobody.sock"))
    found = await machines(tmp_path)
    assert found.choice.driver == "containers"
    assert "does not answer" in found.choice.summary
    assert len(found.endpoints.planes()) == 2
    assert found.publishing_controllers != ()
    await found.close()


async def test_simulated_instances_do_not_become_real_by_themselves(tmp_path: Path) -> None:
    remember_driver(tmp_path, "simulated", "")
    found = await machines(tmp_path)
    assert found.choice.driver == "simulated"
    assert found.choice.reason.startswith("as in the last run")
    assert (await machines(tmp_path, "--driver=simulated")).choice.reason == "--driver=simulated"


@pytest.mark.parametrize("last", ["", "simulated"])
async def test_who_names_an_engine_has_asked_for_containers(tmp_path: Path, last: str) -> None:
    if last:
        remember_driver(tmp_path, last, "")
    with pytest.raises(StateError) as refused:
        await machines(tmp_path, "--engine", str(tmp_path / "mine.sock"))
    assert "mine.sock: the container engine does not answer" in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"driver": "x"}', '{"driver": 1}'])
async def test_a_damaged_note_of_the_driver_is_told_and_never_guessed(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "driver.json").write_text(text)
    with pytest.raises(StateError) as refused:
        await machines(tmp_path)
    assert "driver.json is damaged" in str(refused.value)
    assert "--driver" in str(refused.value)
    assert (await machines(tmp_path, "--driver=simulated")).choice.driver == "simulated"
    remember_driver(tmp_path, "simulated", "")
    assert remembered_driver(tmp_path) == ("simulated", "")


def test_instances_that_run_as_containers_cannot_become_simulated(tmp_path: Path) -> None:
    simulated = DriverChoice("simulated", "--driver=simulated", "instances are simulated")
    require_same_driver(tmp_path, simulated, 2)  # the first run
    remember_driver(tmp_path, "simulated", "")
    require_same_driver(tmp_path, simulated, 2)
    remember_driver(tmp_path, "containers", "/run/engine.sock")
    require_same_driver(tmp_path, simulated, 0)
    require_same_driver(tmp_path, DriverChoice("containers", "", ""), 2)
    with pytest.raises(StateError, match=r"2 instances of .* run as containers"):
        require_same_driver(tmp_path, simulated, 2)

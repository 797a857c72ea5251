"""Which driver a platform gets, and that it keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from datum_compute.api.planes import cell_plane
from datum_compute.app.driver_selection import Machines, build_machines, publishing_over
from datum_compute.app.environment import real_ports
from datum_compute.app.settings.settings import local_settings
from datum_compute.app.state_directory import StateError, remember_driver, remembered_driver

CELLS = (cell_plane("dfw"), cell_plane("iad"))


async def machines(state: Path, *flags: str) -> Machines:
    """On a machine without an engine."""
    usual = (str(state / "nobody.sock"),)
    settings = local_settings(["--state-dir", str(state), *flags], {})
    return await build_machines(
        settings.driver, state, CELLS, real_ports(), CollectorRegistry(), usual
    )


async def test_without_an_engine_instances_are_simulated(tmp_path: Path) -> None:
    found = await machines(tmp_path)
    assert (found.driver, found.why) == ("simulated", "no container engine answers")
    assert tuple(found.drivers) == CELLS
    assert publishing_over(found) == ()


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
    assert found.driver == "containers"
    assert "away" in found.told
    assert len(found.ways) == 2
    assert publishing_over(found) != ()
    await found.close()


async def test_simulated_instances_do_not_become_real_by_themselves(tmp_path: Path) -> None:
    remember_driver(tmp_path, "simulated", "")
    found = await machines(tmp_path)
    assert found.driver == "simulated"
    assert found.why.startswith("as in the last run")
    assert (await machines(tmp_path, "--driver=simulated")).why == "as --driver=simulated says"


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
    assert (await machines(tmp_path, "--driver=simulated")).driver == "simulated"
    remember_driver(tmp_path, "simulated", "")
    assert remembered_driver(tmp_path) == ("simulated", "")

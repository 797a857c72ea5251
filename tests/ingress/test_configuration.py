"""Stored configuration of the ingress, and the plan of its listeners."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datum_compute.api.planes import cell_plane
from datum_compute.api.traffic import Backend, SleepPolicy
from datum_compute.ingress.configuration import (
    Configuration,
    ConfigurationError,
    ListenerPlan,
    StoredOwner,
    StoredPort,
    decode_configuration,
    desired_numbers,
    encode_configuration,
    plan_listeners,
)
from datum_compute.ingress.protocol import DesiredOwner, DesiredPort

BACKEND = Backend(cell_plane("dfw"), "ns/web/1", "10.0.0.1", 80, SleepPolicy(0.5, "pause", 10.0))
HTTP, METRICS = ("web", "http"), ("web", "metrics")


def test_listeners_are_opened_for_new_ports_and_closed_for_removed_ones() -> None:
    plan = plan_listeners({HTTP: 8080}, {METRICS: 9090})
    assert plan == ListenerPlan(open=((HTTP, 8080),), close=(METRICS,))


def test_an_open_listener_stays_open_when_another_number_is_desired() -> None:
    assert plan_listeners({HTTP: 8080}, {HTTP: 9090}) == ListenerPlan()


def test_a_port_that_is_not_published_yet_after_a_restart_stays_open() -> None:
    desired = DesiredOwner("web", ports={"http": DesiredPort(last_port=8080)}, kept=("metrics",))
    open_now = {HTTP: 8080, METRICS: 9090, ("web", "old"): 7070}
    assert desired_numbers(desired, open_now) == {HTTP: 8080, METRICS: 9090}


def test_a_configuration_is_read_as_it_was_written_with_the_observed_state() -> None:
    owners = {"web": StoredOwner("state", True, {"http": StoredPort(8080, (BACKEND,))})}
    content = encode_configuration(owners, lambda backend: replace(backend, asleep=True))
    sleeping = StoredPort(8080, (replace(BACKEND, asleep=True),))
    expected = {"web": StoredOwner("state", True, {"http": sleeping})}
    assert decode_configuration(content) == Configuration(owners=expected)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"format": 2}',
        b'{"owners": []}',
        b'{"owners": {"\xff": {"client": "state"}}}',
        b'{"owners": {"web": {"client": "state", "ports": {"http": {"number": 70000}}}}}',
        pytest.param(b'{"x":' * 100_000, id="nested too deeply"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_an_error(content: bytes) -> None:
    with pytest.raises(ConfigurationError):
        decode_configuration(content)

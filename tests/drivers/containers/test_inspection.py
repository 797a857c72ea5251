"""Responses of engines are parsed."""

from __future__ import annotations

from datum_compute.api.meta.timestamps import unix_time
from datum_compute.drivers.containers.inspection import parse_container


def test_the_response_of_podman_is_parsed() -> None:
    podman = {
        "Id": "abc",
        "State": {
            "Status": "exited",
            "ExitCode": 3,
            "OOMKilled": True,
            "StartedAt": "2026-11-15T18:53:46.83135799Z",
            "FinishedAt": "2026-11-15T18:54:22.794790397Z",
        },
        "NetworkSettings": {"Networks": {"n": {"IPAddress": "10.0.0.9"}}},
    }
    container = parse_container("app", podman)
    assert (container.state, container.exit_code, container.out_of_memory) == ("exited", 3, True)
    assert container.started_at == "2026-11-15T18:53:46Z"
    assert 35.9 < container.finished_s - container.started_s < 36.0
    assert container.addresses == ("10.0.0.9",)
    assert unix_time("0001-01-01T00:00:00Z") == 0.0
    assert unix_time("nonsense") == 0.0
    assert parse_container("app", {"State": {"Status": "restarting"}}).state == "running"

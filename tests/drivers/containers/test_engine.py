"""Messages of the engine are shown without host paths."""

from __future__ import annotations

import pytest

from datum_compute.api.meta.codec import encode
from datum_compute.drivers.containers.engine import (
    parse_error_message,
)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            'error mounting "/var/lib/docker/overlay2/ab/merged" to rootfs',
            'error mounting "(path on the host)" to rootfs',
        ),
        (
            "crun: open /srv/me/.local/share/containers/storage/overlay/x/etc: denied",
            "crun: open (path on the host): denied",
        ),
        ("dial unix /run/user/1000/podman/podman.sock: no", "dial unix (path on the host): no"),
        ("dial unix /var/run/docker.sock: no", "dial unix (path on the host): no"),
        ("open /proc/4242/ns/net", "open (path on the host)"),
        ('exec: "/app/server": no such file', 'exec: "/app/server": no such file'),
        ("/opt/app/run.sh: permission denied", "/opt/app/run.sh: permission denied"),
        ("/run/dockerfiles/x: not found", "/run/dockerfiles/x: not found"),
    ],
)
def test_error_messages_contain_no_host_paths(message: str, shown: str) -> None:
    assert parse_error_message(encode({"message": message})) == shown

"""The same requests against a kube-apiserver with etcd, in the same run.

The servers run where ``make kube-assets`` has built them. Writes are durable: etcd syncs each write
to the disk of the checkout, as our store does. The load is one process with 32 connections over
TLS, for both servers.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.load import Target
from bench.processes import Running
from hack.kube_assets import found_assets
from tests.e2e.single_cluster import installed
from tests.kubernetes.servers import ADMIN_TOKEN, RealServers


def is_built() -> bool:
    """Return True if a kube-apiserver and an etcd exist on this machine."""
    return found_assets(os.environ) is not None


@contextmanager
def kube_apiserver(folder: Path) -> Iterator[Running]:
    """Run a kube-apiserver that serves our kinds, with an etcd that syncs its writes.

    ``Running.pid`` is the process of the kube-apiserver; etcd is a process beside it.
    """
    assets = found_assets(os.environ)
    assert assets is not None, "build the servers with make kube-assets"
    folder.mkdir(parents=True, exist_ok=True)
    servers = RealServers(assets, folder, syncs_writes=True)
    try:
        servers.start_etcd()
        plane = servers.start_plane("bench")
        installed(plane.admin)
        tls = ssl.create_default_context(cafile=str(plane.authority))
        target = Target(plane.port, tls, ADMIN_TOKEN)
        yield Running(plane.running.processes[0].pid, target, "", 0.0)
    finally:
        servers.stop()

"""A stopped workload keeps its containers on a real engine, and the same ones start again."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real, page
from testkit.processes.local_platform import eventually

pytestmark = pytest.mark.timeout(180)


def containers(engine: TestEngine) -> list[tuple[str, str]]:
    """Return id and state of every container."""
    found = engine.podman("ps", "--all", "--format", "{{.ID}} {{.State}}")
    return sorted((line.split()[0], line.split()[1].lower()) for line in found.splitlines())


def url_of(real: Real) -> str:
    (endpoint,) = json.loads(real.run("status", "web", "-o", "json").stdout)["endpoints"]
    return str(endpoint["url"])


def identity(real: Real) -> tuple[str, str, int]:
    """Return uid and address of the instance, and the number of its restarts."""
    (instance,) = real.objects("cell/dfw", "instances")
    (server,) = real.objects("cell/dfw", "servers.region.datumapis.com")
    (interface,) = instance["status"]["networkInterfaces"]
    address = interface["addresses"][0]["address"]
    return instance["metadata"]["uid"], address, server["status"].get("restarts", 0)


def test_stop_keeps_the_container_and_start_runs_it_again(real: Real, engine: TestEngine) -> None:
    image = engine.image("web:1")
    done = real.deploy("web", f"--image={image}", "--city=DFW", "--port=8080")
    assert done.returncode == 0, done.stdout + done.stderr
    url, before = url_of(real), identity(real)
    assert page(url) == "v1"
    ((container, _),) = containers(engine)

    done = real.run("stop", "web")
    assert done.returncode == 0, done.stdout + done.stderr
    assert containers(engine) == [(container, "exited")]
    assert [i["status"] for i in real.instances("web")] == ["Stopped"]
    assert identity(real) == before
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=5)
    with refused.value:
        assert refused.value.code == 503

    real.kill()
    done = real.up("--driver", "containers", "--engine", engine.socket, "--cells", "dfw,iad")
    assert done.returncode == 0, done.stderr
    eventually(lambda: [i["status"] for i in real.instances("web")] == ["Stopped"], "it is stopped")
    assert containers(engine) == [(container, "exited")], "a restart of the cell starts it"

    done = real.run("start", "web")
    assert done.returncode == 0, done.stdout + done.stderr
    assert containers(engine) == [(container, "up")]
    assert identity(real) == before
    assert page(url_of(real)) == "v1"

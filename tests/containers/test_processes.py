"""Real containers of cells in separate processes, reached through the central process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real, page, up
from testkit.processes.local_platform import eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def separate_cells(engine: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    platform = Real(tmp_path_factory.mktemp("apart") / "state")
    up(platform, engine, "--processes")
    engine.publish("hello:1", "v1", 'CMD ["sh", "-c", "echo hello; exec httpd -f -p 8080 -h /www"]')
    words = (f"--image={engine.image('hello:1')}", "--city=DFW", "--city=IAD", "--port=8080")
    done = platform.deploy("web", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    yield platform
    platform.run("destroy", "web", "--yes")
    eventually(
        lambda: engine.podman("ps", "--all", "--quiet").split() == [], "all containers are removed"
    )
    platform.down()


def test_logs_top_ports_and_exec_work_for_both_cells(separate_cells: Real) -> None:
    logs = separate_cells.run("logs", "web")
    assert logs.returncode == 0, logs.stderr
    assert sorted(line.partition(" | ")[2] for line in logs.stdout.splitlines()) == ["hello"] * 2
    names = [instance["name"] for instance in separate_cells.instances("web")]
    for name in names:
        done = separate_cells.run("exec", name, "--", "sh", "-c", "echo inside; exit 5")
        assert (done.returncode, done.stdout) == (5, "inside\n"), done.stderr
    found = json.loads(separate_cells.run("instances", "top", "-o", "json").stdout)["items"]
    assert sorted(row["name"] for row in found) == sorted(names)
    assert all(row["memoryMebibytes"] is not None for row in found)
    urls = json.loads(separate_cells.run("status", "web", "-o", "json").stdout)["endpoints"]
    assert [page(url["url"]) for url in urls] == ["v1", "v1"]


def test_an_unreachable_cell_is_named_and_the_other_one_works(separate_cells: Real) -> None:
    pid = int(
        json.loads((separate_cells.state / "cells" / "dfw" / "server.json").read_text())["pid"]
    )
    by_city = {instance["city"]: instance["name"] for instance in separate_cells.instances("web")}
    os.kill(pid, signal.SIGSTOP)
    try:
        done = separate_cells.run("exec", by_city["IAD"], "--", "true")
        assert done.returncode == 0, done.stderr
        done = separate_cells.run("exec", by_city["DFW"], "--", "true")
        assert done.returncode == 1
        assert "cannot reach cell dfw" in done.stderr
        done = separate_cells.run("logs", "web")
        assert (done.returncode, done.stdout.count("hello")) == (0, 1), done.stderr
        assert "cannot reach cell dfw" in done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)

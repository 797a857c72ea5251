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
def apart(engine: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    platform = Real(tmp_path_factory.mktemp("apart") / "state")
    up(platform, engine, "--processes")
    engine.publish("says:1", "v1", 'CMD ["sh", "-c", "echo hello; exec httpd -f -p 8080 -h /www"]')
    words = (f"--image={engine.image('says:1')}", "--city=DFW", "--city=IAD", "--port=8080")
    done = platform.deploy("web", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    yield platform
    platform.run("destroy", "web", "--yes")
    eventually(lambda: engine.podman("ps", "--all", "--quiet").split() == [], "all are gone")
    platform.down()


def test_logs_top_ports_and_exec_work_for_both_cells(apart: Real) -> None:
    said = apart.run("logs", "web")
    assert said.returncode == 0, said.stderr
    assert sorted(line.partition(" | ")[2] for line in said.stdout.splitlines()) == ["hello"] * 2
    names = [instance["name"] for instance in apart.instances("web")]
    for name in names:
        done = apart.run("exec", name, "--", "sh", "-c", "echo inside; exit 5")
        assert (done.returncode, done.stdout) == (5, "inside\n"), done.stderr
    found = json.loads(apart.run("instances", "top", "-o", "json").stdout)["items"]
    assert sorted(row["name"] for row in found) == sorted(names)
    assert all(row["memoryMebibytes"] is not None for row in found)
    urls = json.loads(apart.run("status", "web", "-o", "json").stdout)["endpoints"]
    assert [page(url["url"]) for url in urls] == ["v1", "v1"]


def test_an_unreachable_cell_is_named_and_the_other_one_works(apart: Real) -> None:
    pid = int(json.loads((apart.state / "cells" / "dfw" / "server.json").read_text())["pid"])
    by_city = {instance["city"]: instance["name"] for instance in apart.instances("web")}
    os.kill(pid, signal.SIGSTOP)
    try:
        done = apart.run("exec", by_city["IAD"], "--", "true")
        assert done.returncode == 0, done.stderr
        done = apart.run("exec", by_city["DFW"], "--", "true")
        assert done.returncode == 1
        assert "cell dfw does not answer" in done.stderr
        done = apart.run("logs", "web")
        assert (done.returncode, done.stdout.count("hello")) == (0, 1), done.stderr
        assert "cell dfw does not answer" in done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)

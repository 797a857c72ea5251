"""Published ports on the real engine, served by ``compute-ingress`` without the platform."""

from __future__ import annotations

import json
import os
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real, up
from testkit.processes.local_platform import eventually
from tests.containers.load import Load
from tests.containers.test_sleeping import Site, get

pytestmark = pytest.mark.timeout(240)


@contextmanager
def separate_ingress(platform: Real, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve the ports of the platform by an ingress process, which must end with it."""
    monkeypatch.setenv("DATUM_INGRESS", "process")
    try:
        yield
    finally:
        platform.down()
        pid = ingress_pid(platform.state)
        assert pid is None, f"ingress {pid} was left"


def ingress_pid(state: Path) -> int | None:
    try:
        pid = int((state / "ingress.lock").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if os.fsencode(state) in command.split(b"\0") else None


def test_requests_are_served_while_the_platform_is_killed_and_stopped(
    engine: TestEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Real(tmp_path / "state")
    with separate_ingress(platform, monkeypatch):
        up(platform, engine)
        image = f"--image={engine.image('web:1')}"
        done = platform.deploy("web", image, "--min=2", "--port=8080", "--city=DFW")
        assert done.returncode == 0, done.stdout + done.stderr
        (url,) = urls(platform)
        pid = ingress_pid(platform.state)
        assert pid is not None
        assert os.getsid(pid) != os.getsid(platform.pid), "a session of its own"
        with Load(url) as load:
            eventually(lambda: len(load.answers) > 20, "requests are answered")
            platform.kill()
            wait_for_more(load)
            up(platform, engine)
            wait_for_more(load)
            stopped = platform.run("local", "down", "--state-dir", str(platform.state))
            assert "local down --all" in stopped.stderr
            wait_for_more(load)
            up(platform, engine)
            wait_for_more(load)
        assert load.failures == []
        assert urls(platform) == [url]
        assert ingress_pid(platform.state) == pid
        assert platform.run("destroy", "web", "--yes").returncode == 0
        eventually(lambda: engine.podman("ps", "--all", "--quiet").split() == [], "all are gone")


def urls(platform: Real) -> list[str]:
    shown = json.loads(platform.run("status", "web", "-o", "json").stdout)
    return [endpoint["url"] for endpoint in shown["endpoints"]]


def wait_for_more(load: Load) -> None:
    count = len(load.answers)
    eventually(lambda: len(load.answers) > count + 20, "requests are answered")


def test_a_sleeping_instance_is_woken_and_answers_503_while_the_platform_is_down(
    engine: TestEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Real(tmp_path / "state")
    with separate_ingress(platform, monkeypatch):
        up(platform, engine)
        site = Site(platform, engine, tmp_path)
        site.deploy("pause", idle_after="300ms")
        url = site.url
        for _ in range(5):
            site.falls_asleep("paused")
            assert get(url) == "v1"
        site.falls_asleep("paused")
        platform.kill()
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(url)
        with refused.value:
            assert refused.value.code == 503
            assert refused.value.headers["Retry-After"]
        up(platform, engine)
        assert get(url) == "v1"
        site.destroy()

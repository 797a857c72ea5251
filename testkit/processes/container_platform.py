"""A complete platform whose instances are containers of the real engine."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from testkit.processes.container_engine import TestEngine
from testkit.processes.local_platform import LocalPlatform


class Real(LocalPlatform):
    """A platform whose instances are containers."""

    __slots__ = ()

    def deploy(self, name: str, *words: str) -> Any:
        return self.run("deploy", name, "--yes", *words)

    def instances(self, workload: str = "") -> list[dict[str, Any]]:
        chosen = [f"--workload={workload}"] if workload else []
        done = self.run("instances", "-o", "json", *chosen)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return found

    def ready(self, workload: str = "") -> list[dict[str, Any]]:
        return [i for i in self.instances(workload) if i["status"] == "Available"]


def page(where: str, port: int = 8080) -> str:
    """Return the page at an address or URL."""
    host = f"[{where}]" if where.count(":") > 1 else where
    url = where if where.startswith("http") else f"http://{host}:{port}/"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode().strip())


def up(platform: Real, engine: TestEngine, *more: str) -> None:
    words = ("--driver", "containers", "--engine", engine.socket, "--cells", "dfw,iad")
    done = platform.up(*words, *more)
    assert done.returncode == 0, done.stderr

"""A real kubectl, pointed at one context of a running platform."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hack.find_kubectl import kubectl

COMMAND_S = 60


@dataclass(frozen=True, slots=True)
class Kubectl:
    """``more`` are flags of every command: the namespace a test works in, another token."""

    kubeconfig: Path
    context: str
    more: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What the command prints; it must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return json.loads(self(*arguments, "--output=json", stdin=stdin))

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """What the command complains of; it must fail."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"{arguments}: {done.stdout}"
        return done.stderr

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            env=self.surroundings(),
        )

    def command(self, *arguments: str) -> list[str]:
        where = (f"--kubeconfig={self.kubeconfig}", f"--context={self.context}")
        return [kubectl(), *where, *self.more, *arguments]

    def surroundings(self) -> dict[str, str]:
        """What kubectl has learned of one server must not reach a test of another."""
        cache = self.kubeconfig.parent / "kubectl-cache"
        return {**os.environ, "KUBECACHEDIR": str(cache), "KUBERC": "off", **self.environment}

    def within(self, namespace: str) -> Kubectl:
        return replace(self, more=(*self.more, f"--namespace={namespace}"))

    def flagged(self, *flags: str, **environment: str) -> Kubectl:
        return replace(
            self, more=(*self.more, *flags), environment={**self.environment, **environment}
        )

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Lines]:
        """The lines of a command that goes on until the test has seen enough."""
        process = subprocess.Popen(
            self.command(*arguments), stdout=subprocess.PIPE, text=True, env=self.surroundings()
        )
        try:
            yield Lines(process)
        finally:
            process.kill()
            process.wait()


class Lines:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def next(self) -> list[str]:
        """The words of the next line."""
        return self._lines.get(timeout=COMMAND_S).split()

    def exit_code(self) -> int:
        """Of a command that ends by itself."""
        return self._process.wait(timeout=COMMAND_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line)

"""kubectl with one context of a running platform."""

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
    """``flags`` are added to every command, such as a namespace or a token."""

    kubeconfig: Path
    context: str
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return json.loads(self(*arguments, "--output=json", stdin=stdin))

    def error_of(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must fail, and return its error output."""
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
            env=self.command_environment(),
        )

    def command(self, *arguments: str) -> list[str]:
        where = (f"--kubeconfig={self.kubeconfig}", f"--context={self.context}")
        return [kubectl(), *where, *self.flags, *arguments]

    def command_environment(self) -> dict[str, str]:
        """Return the environment, with a discovery cache that other tests do not share."""
        cache = self.kubeconfig.parent / "kubectl-cache"
        return {**os.environ, "KUBECACHEDIR": str(cache), "KUBERC": "off", **self.environment}

    def in_namespace(self, namespace: str) -> Kubectl:
        return replace(self, flags=(*self.flags, f"--namespace={namespace}"))

    def with_flags(self, *flags: str, **environment: str) -> Kubectl:
        return replace(
            self, flags=(*self.flags, *flags), environment={**self.environment, **environment}
        )

    @contextmanager
    def start_command(self, *arguments: str) -> Iterator[OutputLines]:
        """Start a command that runs until the end of the context, such as a watch."""
        process = subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            text=True,
            env=self.command_environment(),
        )
        try:
            yield OutputLines(process)
        finally:
            process.kill()
            process.wait()


class OutputLines:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def next_words(self) -> list[str]:
        """Return the words of the next line."""
        return self._lines.get(timeout=COMMAND_S).split()

    def exit_code(self) -> int:
        """Wait for a command that ends by itself."""
        return self._process.wait(timeout=COMMAND_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line)

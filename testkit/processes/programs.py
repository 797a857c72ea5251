"""Processes that a test starts, each with a log file."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

STOP_S = 20

Process = subprocess.Popen[bytes]


@dataclass
class ProcessGroup:
    """Processes that are started and stopped together, in start order; empty while down."""

    processes: list[Process] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.processes)

    def start(self, command: list[str], log: Path) -> None:
        self.processes.append(start_process(command, log))

    def kill(self) -> None:
        """Kill all processes, as a power failure does."""
        for process in self.processes:
            kill(process)
        self.processes.clear()

    def send(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def stop(self) -> None:
        for process in reversed(self.processes):
            stop(process)
        self.processes.clear()


def start_process(
    command: list[str], log: Path, environment: dict[str, str] | None = None
) -> Process:
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, cwd=log.parent, env=environment
        )


def kill(process: Process) -> None:
    process.kill()
    process.wait()


def stop(process: Process) -> int:
    """Stop the process with SIGTERM, or with SIGKILL after STOP_S."""
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()

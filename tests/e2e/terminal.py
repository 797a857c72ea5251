"""A terminal (tmux) for a test."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

TMUX = shutil.which("tmux")


@dataclass(frozen=True, slots=True)
class Screen:
    """A tmux session: send keys, and read the displayed text."""

    socket: str

    def tmux(self, *words: str) -> str:
        assert TMUX is not None
        done = subprocess.run(
            [TMUX, "-L", self.socket, *words], capture_output=True, text=True, check=False
        )
        return done.stdout

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", "main", text, "Enter")

    def press(self, key: str) -> None:
        self.tmux("send-keys", "-t", "main", key)

    def text(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "main", "-S", "-200")

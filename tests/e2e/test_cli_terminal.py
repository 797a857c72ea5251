"""The command line on a terminal (tmux): live progress, Ctrl-C, and a resized window."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from testkit.processes.local_platform import BIN, LocalPlatform, eventually
from tests.e2e.terminal import TMUX, Screen

pytestmark = pytest.mark.e2e


@pytest.fixture
def screen(platform: LocalPlatform) -> Iterator[Screen]:
    if TMUX is None:
        pytest.skip("tmux is not installed: apt-get install -y tmux")
    found = Screen(f"cli-{uuid.uuid4().hex[:8]}")
    path = f"{BIN}:{os.environ['PATH']}"
    shell = f"env -u NO_COLOR PATH={path} DATUM_STATE_DIR={platform.state} PS1='ready> ' sh"
    found.tmux("new-session", "-d", "-s", "main", "-x", "100", "-y", "30", shell)
    eventually(lambda: "ready>" in found.text(), "the shell shows its prompt")
    yield found
    found.tmux("kill-server")


DEPLOY = "datumctl compute deploy web --image=x.example/web:1 --city=DFW,LHR --min=3"


def test_the_prompt_names_the_project_and_progress_is_redrawn_in_place(screen: Screen) -> None:
    screen.type(DEPLOY)
    question = "Apply to web in project/default (DFW, LHR)? [y/N]"
    eventually(lambda: question in screen.text(), "it requests confirmation")
    screen.type("yes")
    eventually(lambda: "PROGRESS" in screen.text(), "the progress table is displayed")
    screen.tmux("resize-window", "-t", "main", "-x", "64", "-y", "20")
    eventually(
        lambda: "web is ready: 6 instances in 2 cities" in screen.text(), "the command ends", 60
    )
    assert screen.text().count("UP-TO-DATE") == 1, "the table is redrawn in place"
    assert max(len(line) for line in screen.text().splitlines()) <= 100


def test_ctrl_c_exits_130_and_prints_how_to_resume(screen: Screen) -> None:
    screen.type(f"{DEPLOY} -y --min=5; echo code=$?")
    eventually(lambda: "Rolling out web" in screen.text(), "the progress table is displayed")
    screen.press("C-c")
    eventually(lambda: "code=" in screen.text().replace("code=$?", ""), "the command ends")
    text = screen.text()
    assert "code=130" in text, text
    assert "Wait for it again: datumctl compute rollout status web" in text
    screen.type("datumctl compute rollout status web; echo next=$?")
    eventually(lambda: "next=0" in screen.text(), "the rollout completes", 60)

"""``open``: the address of a workload, in a browser or printed."""

from __future__ import annotations

import pytest

from tests.cli.runner import CliRunner
from tests.cli.world import World, simulated_gateway

FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def test_open_prints_the_url_or_opens_it_on_a_terminal(cli: CliRunner, world: World) -> None:
    world.gateway = lambda _request: None
    cli.run(*FIRST)
    assert cli.run("open", "web") == 0
    assert cli.out == "http://10.0.0.0:80/\n"
    cli.is_terminal = True
    assert cli.run("open", "web") == 0
    assert cli.opened == ["http://10.0.0.0:80/"]
    assert cli.run("open", "web", "--print") == 0
    assert cli.out == "http://10.0.0.0:80/\n"


def test_the_url_of_a_simulated_instance_is_not_opened(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    world.gateway = simulated_gateway
    cli.is_terminal = True
    assert cli.run("open", "web") == 0
    assert cli.opened == []
    assert cli.out == "http://10.0.0.0:80/\n"
    assert "The instances are simulated" in cli.err


def test_open_of_a_workload_without_a_port_is_an_error(cli: CliRunner) -> None:
    cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y")
    assert cli.run("open", "web") == 3
    assert "has no port" in cli.err
    assert "datumctl compute deploy web --port=80" in cli.err

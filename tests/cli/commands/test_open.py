"""``open``: the address of a workload, in a browser or printed."""

from __future__ import annotations

import pytest

from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.workload import Workload
from datum_compute.api.meta.codec import from_json, to_json
from datum_compute.cli.commands.open import urls_of
from tests.cli.objects import condition, instance, workload
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


def ready_instance(name: str, address: str, status: str = "True") -> Instance:
    found = to_json(instance(name, "DFW", condition("Ready", status, "Available")))
    found["status"]["networkInterfaces"] = [{"assignments": {"networkIP": address}}]
    return from_json(found, Instance)


def listening_on(*ports: tuple[str, int, str]) -> Workload:
    """Return a workload with these ports, each with name, number and protocol."""
    found = to_json(workload("DFW"))
    (container,) = found["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    container["ports"] = [
        {"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports
    ]
    return from_json(found, Workload)


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        pytest.param([("http", 8080, "TCP")], ["http://10.0.0.1:8080/"], id="http"),
        pytest.param([("x", 443, "TCP")], ["https://10.0.0.1:443/"], id="https"),
        pytest.param(
            [("metrics", 9090, "TCP"), ("web", 80, "TCP")], ["http://10.0.0.1:80/"], id="web-first"
        ),
        pytest.param([("dns", 53, "UDP")], [], id="udp-only"),
    ],
)
def test_the_url_has_the_port_for_browsers(
    ports: list[tuple[str, int, str]], expected: list[str]
) -> None:
    assert urls_of(listening_on(*ports), [ready_instance("web-0", "10.0.0.1")]) == expected


def test_only_ready_instances_with_an_address_have_a_url() -> None:
    instances = [
        ready_instance("web-2", "fd00::2"),
        ready_instance("web-1", "10.0.0.1"),
        ready_instance("web-0", "10.0.0.9", status="False"),
        instance("web-3", "DFW", condition("Ready", "True", "Available")),
    ]
    assert urls_of(listening_on(("http", 80, "TCP")), instances) == [
        "http://10.0.0.1:80/",
        "http://[fd00::2]:80/",
    ]

"""Settings for the limits of a port on connections and on data that clients have not read."""

from __future__ import annotations

import argparse

from datum_compute.app.front.limits import MIB, PortLimits
from datum_compute.app.settings.values import count_value


def add_connection_limits(parser: argparse.ArgumentParser) -> None:
    usual = PortLimits()
    for name, default, text in (
        (
            "connections-max",
            usual.connections_max,
            "connections of users; fewer if the limit of open files is lower",
        ),
        (
            "connections-reserved",
            usual.reserved_connections,
            "additional connections, only for controllers, cells and operators",
        ),
        ("connections-per-user-max", usual.connections_per_user_max, "connections of one user"),
        (
            "anonymous-connections-max",
            usual.anonymous_connections_max,
            "connections without valid credentials",
        ),
        (
            "anonymous-connections-per-address-max",
            usual.anonymous_connections_per_address_max,
            "connections of one address without valid credentials",
        ),
        (
            "unsent-mebibytes-max",
            usual.unsent_bytes_max // MIB,
            "unread data of all clients; above it the server closes the slowest connections",
        ),
        (
            "unsent-mebibytes-per-user-max",
            usual.unsent_bytes_per_user_max // MIB,
            "unread data of the clients of one user",
        ),
    ):
        parser.add_argument(
            f"--{name}", type=count_value, default=default, metavar="NUMBER", help=text
        )


def port_limits(parsed: argparse.Namespace) -> PortLimits:
    return PortLimits(
        connections_max=parsed.connections_max,
        reserved_connections=parsed.connections_reserved,
        connections_per_user_max=parsed.connections_per_user_max,
        anonymous_connections_max=parsed.anonymous_connections_max,
        anonymous_connections_per_address_max=parsed.anonymous_connections_per_address_max,
        unsent_bytes_max=parsed.unsent_mebibytes_max * MIB,
        unsent_bytes_per_user_max=parsed.unsent_mebibytes_per_user_max * MIB,
    )

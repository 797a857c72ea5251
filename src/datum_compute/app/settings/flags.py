"""Flags that several processes have; ``settings.py`` says which process has which."""

from __future__ import annotations

import argparse
from pathlib import Path

from datum_compute.app.settings.values import (
    LOOPBACK,
    address_value,
    capacity_value,
    duration_value,
    host_value,
    names_value,
    port_value,
    seconds_value,
)
from datum_compute.telemetry.logs import FORMATS, LEVELS


def add_serving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state-dir", type=Path, help="where everything is kept (required)")
    parser.add_argument(
        "--port", type=port_value, default=0, help="0 is the one last used, or any free one"
    )
    parser.add_argument(
        "--listen",
        type=host_value,
        default=LOOPBACK,
        metavar="ADDRESS",
        help="address of this machine to listen on; 0.0.0.0 is every one",
    )
    parser.add_argument(
        "--server-names",
        type=names_value,
        default=(),
        metavar="NAME,...",
        help="names and addresses by which others reach it, for its certificate",
    )
    parser.add_argument(
        "--driver",
        choices=("auto", "containers", "simulated"),
        default="auto",
        help="what runs the instances; auto: as in the last run, else containers if an engine "
        "answers",
    )
    parser.add_argument(
        "--engine",
        default="",
        metavar="SOCKET",
        help="socket of podman or Docker; else the first of the usual ones that answers",
    )


def add_webhook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--webhook-address",
        type=address_value,
        metavar="HOST:PORT",
        help="answer AdmissionReviews of API servers there, over TLS (deploy/webhook)",
    )
    for name, text in (
        ("certificate", "certificate of that port, as PEM; read again when it changes"),
        ("key", "its key; without both files a certificate is made in the state directory"),
        ("client-authority", "authority of the API servers that may ask; without it all may"),
    ):
        parser.add_argument(f"--webhook-{name}", type=Path, metavar="FILE", help=text)


def add_gateway(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gateway-address",
        type=address_value,
        metavar="HOST:PORT",
        help="answer there, over TLS, what people ask about instances: logs, usage, commands",
    )
    for name, text in (
        ("certificate", "certificate of that port, as PEM; read again when it changes"),
        ("key", "its key; without both files a certificate is made in the state directory"),
    ):
        parser.add_argument(f"--gateway-{name}", type=Path, metavar="FILE", help=text)


def add_grace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--instance-type-deprecation-grace-period",
        type=duration_value,
        default="1440h",
        metavar="DURATION",
        help="how long a deprecated instance type cannot be disabled, such as 1440h or 90m",
    )


def add_heartbeat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--heartbeat-seconds",
        type=seconds_value,
        default=10.0,
        metavar="SECONDS",
        help="how often a cell tells the hub that it lives; Karmada asks its members itself",
    )
    parser.add_argument(
        "--capacity",
        type=capacity_value,
        default={},
        metavar="RESOURCE=AMOUNT,...",
        help="what the cell has, such as cpu=64,memory=256Gi,instances=100; the hub shows it",
    )


def add_boot_time(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--simulated-boot-seconds",
        type=seconds_value,
        default=0.0,
        metavar="SECONDS",
        help="how long simulated machines take to boot",
    )


def add_telemetry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="what is worth a line")
    parser.add_argument(
        "--log-format", choices=FORMATS, default="console", help="for people, or one JSON object"
    )
    parser.add_argument(
        "--otlp-endpoint",
        default="",
        metavar="URL",
        help="where spans go (needs the extra otel); none are made without it",
    )


def add_switch(
    parser: argparse.ArgumentParser, name: str, *, text: str, default: bool = False
) -> None:
    parser.add_argument(
        f"--{name}", action=argparse.BooleanOptionalAction, default=default, help=text
    )

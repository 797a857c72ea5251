"""Settings for the limits on requests that wait on a busy server."""

from __future__ import annotations

import argparse

from datum_compute.app.settings.values import count_value, seconds_value
from datum_compute.server.flowcontrol.control import FlowLimits


def add_flow_limits(parser: argparse.ArgumentParser) -> None:
    usual = FlowLimits()
    for name, default, text in (
        (
            "waiting-requests-per-user-max",
            usual.flow_requests_max,
            "requests of one user on one plane that may wait on a busy server; more get 429",
        ),
        (
            "waiting-requests-max",
            usual.level_requests_max,
            "requests of one priority level that may wait; above it the user with most gets 429",
        ),
    ):
        parser.add_argument(
            f"--{name}", type=count_value, default=default, metavar="NUMBER", help=text
        )
    parser.add_argument(
        "--request-wait-seconds-max",
        type=seconds_value,
        default=usual.wait_max_s,
        metavar="SECONDS",
        help="a request of a user that has waited longer gets 429",
    )


def flow_limits_of(parsed: argparse.Namespace) -> FlowLimits:
    return FlowLimits(
        flow_requests_max=parsed.waiting_requests_per_user_max,
        level_requests_max=parsed.waiting_requests_max,
        wait_max_s=parsed.request_wait_seconds_max,
    )

"""A sleeping instance is available, and shows its last wake."""

from __future__ import annotations

import msgspec

from datum_compute.api.compute.instance import Instance, InstanceSpec, InstanceStatus
from datum_compute.api.compute.scale_to_zero import ScaleToZero, Wake
from datum_compute.api.conditions import Condition
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.cli.commands.instances import wake_document, wake_fields
from datum_compute.cli.render.health import instance_health, short_text
from testkit.builders import a_template

AT = "2026-01-01T00:00:00Z"
WAKE = Wake(
    at=AT,
    mode="stop",
    queue_milliseconds=4,
    engine_milliseconds=170,
    ready_milliseconds=9,
    first_byte_milliseconds=1,
)


def an_instance(reason: str, wake: Wake | None = None) -> Instance:
    spec = InstanceSpec(runtime=a_template().spec.runtime, scale_to_zero=ScaleToZero(mode="stop"))
    conditions = [
        Condition(type="Available", status="True", reason=reason, message="why"),
        Condition(type="Ready", status="True", reason="Available"),
    ]
    status = InstanceStatus(conditions=conditions, last_wake=wake)
    return Instance(metadata=ObjectMeta(name="web-0"), spec=spec, status=status)


def test_only_a_sleeping_instance_has_sleep_fields() -> None:
    asleep, awake = (
        instance_health(an_instance("Asleep")),
        instance_health(an_instance("Available")),
    )
    assert (asleep.word, short_text(asleep)) == ("Available", "Available (asleep)")
    assert (awake.reason, short_text(awake)) == ("", "Available")


def test_the_last_wake_is_shown_with_its_phases() -> None:
    fields = dict(wake_fields(an_instance("Available", WAKE), parse_timestamp(AT) + 5))
    assert fields == {
        "Sleeps": "after 30s without a connection (stop)",
        "Last wake": "5s ago, in 184 ms from stop (queue 4, engine 170, ready 9, firstByte 1)",
    }


def test_a_failed_wake_shows_its_cause() -> None:
    failed = msgspec.structs.replace(WAKE, failure="it crashed")
    fields = dict(wake_fields(an_instance("Available", failed), parse_timestamp(AT) + 5))
    assert fields["Last wake"] == "5s ago, failed: it crashed"


def test_json_contains_the_last_wake_or_null() -> None:
    document = wake_document(an_instance("Available", WAKE))
    assert document is not None
    assert document["milliseconds"]["total"] == 184
    assert wake_document(an_instance("Available")) is None

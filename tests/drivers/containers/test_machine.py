"""Records of machines are read as earlier releases wrote them."""

from __future__ import annotations

from datum_compute.api.meta.codec import decode_as, encode, to_json
from datum_compute.drivers.containers.machine import MachineRecord


def test_the_field_names_of_a_record_in_the_file_do_not_change() -> None:
    record = MachineRecord(
        restarts=2,
        is_down=True,
        start_after_s=5.0,
        backoff_s=10.0,
        container="app",
        exit_code=1,
        out_of_memory=True,
        stop_reason="its liveness probe failed",
        ended_s=4.0,
        last_lines=["bye"],
        sleep_mode="stop",
        was_woken=True,
    )
    fields = {
        "restarts": 2,
        "isDown": True,
        "startAfterS": 5.0,
        "waitS": 10.0,
        "container": "app",
        "exitCode": 1,
        "outOfMemory": True,
        "why": "its liveness probe failed",
        "endedS": 4.0,
        "lines": ["bye"],
        "asleep": "stop",
        "woken": True,
    }
    assert to_json(record) == fields
    assert decode_as(encode(fields), MachineRecord) == record

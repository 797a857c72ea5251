"""A reader misses nothing and gets nothing twice, however its pages fall."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from datum_compute.drivers.containers.loglines import (
    LogLine,
    Place,
    lines_after,
    place_after,
    read_lines,
)
from datum_compute.drivers.containers.logs import last_frames


def said(second: int, text: str) -> LogLine:
    time = datetime.fromtimestamp(second + 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return LogLine(time=time, container="app", stream="out", text=text)


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 20), max_size=6))
def test_pages_together_are_the_log(gaps: list[int], cuts: list[int]) -> None:
    """The log grows between looks; the engine gives whole seconds again, as it always does."""
    second, log = 0, []
    for number, gap in enumerate(gaps):
        second += gap
        log.append(said(second, str(number)))
    read: list[str] = []
    place: Place | None = None
    for until in [*sorted(cuts), len(log)]:
        new = lines_after(log[:until], place)
        read += [line.text for line in new]
        place = place_after(new, place)
    assert read == [line.text for line in log]


def test_lines_come_with_their_time_and_stream() -> None:
    framed = b"".join(
        bytes((stream, 0, 0, 0)) + len(text).to_bytes(4) + text
        for stream, text in (
            (1, b"2026-01-01T00:00:00Z hello there\n"),
            (2, b"2026-01-01T00:00:01Z\n"),
        )
    )
    out, err = read_lines("app", framed)
    assert (out.time, out.stream, out.text) == ("2026-01-01T00:00:00Z", "out", "hello there")
    assert (err.stream, err.text) == ("err", "")


def test_only_a_line_feed_ends_a_line() -> None:
    said = "2026-01-01T00:00:00Z 10 %\r20 %\u2028done\r\n".encode()
    (line,) = read_lines("app", bytes((1, 0, 0, 0)) + len(said).to_bytes(4) + said)
    assert line.text == "10 %\r20 %\u2028done"


def test_what_is_kept_are_whole_lines_from_the_end() -> None:
    frames = [bytes((1, 0, 0, 0)) + (4).to_bytes(4) + b"%03d\n" % n for n in range(10)]
    assert last_frames(b"".join(frames), 30) == b"".join(frames[-2:])
    assert last_frames(b"", 30) == b""

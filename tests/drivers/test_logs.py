"""A reader gets every line once, with pages of any size, at bounded cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.drivers.logs import (
    LINE_BYTES_MAX,
    LINE_CHARACTERS_MAX,
    PIECE_BYTES,
    FrameDecoder,
    LastFrames,
    LastLines,
    LineCollector,
    LineDecoder,
    LineSelection,
    LogLine,
    LogPosition,
    LogQuery,
    LogSource,
    PageBuilder,
)

SECOND = 1_000_000_000


def framed(payload: bytes, stream: int = 1) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(payload).to_bytes(4) + payload


def timed(second: int, text: str, stream: int = 1) -> bytes:
    time = datetime.fromtimestamp(second + SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return framed(f"{time} {text}\n".encode(), stream)


def collect(content: bytes, selection: LineSelection | None = None) -> LineCollector:
    collector = LineCollector("app", selection or LineSelection())
    collector.feed(content)
    collector.finish()
    return collector


def lines_of(content: bytes) -> list[LogLine]:
    return [line for _, line in collect(content).lines]


def texts(collector: LineCollector) -> list[str]:
    return [line.text for _, line in collector.lines]


@given(
    st.lists(st.integers(0, 3), max_size=20),
    st.lists(st.integers(0, 20), max_size=6),
    st.integers(1, 4),
)
def test_consecutive_pages_contain_each_line_once(
    gaps: list[int], cuts: list[int], lines_max: int
) -> None:
    """The log grows between reads; the engine returns whole seconds again."""
    second, log = 0, []
    for number, gap in enumerate(gaps):
        second += gap
        log.append(timed(second, str(number)))
    read: list[str] = []
    position: LogPosition | None = None
    for until in [*sorted(cuts), *[len(log)] * (len(log) + 1)]:
        selection = LineSelection(position=position, is_first=True, lines_max=lines_max)
        collector = collect(b"".join(log[:until]), selection)
        assert len(collector.lines) <= lines_max
        read += texts(collector)
        position = collector.position
    assert read == [str(number) for number in range(len(log))]


def test_seconds_out_of_order_are_counted() -> None:
    """Both streams are written concurrently; one may be a little behind the other."""
    log = [timed(1, "a"), timed(2, "b", 2), timed(1, "c"), timed(2, "d", 2)]
    position = collect(b"".join(log)).position
    assert position == LogPosition(second=SECOND + 2, lines=2)
    log.append(timed(2, "e"))
    assert texts(collect(b"".join(log), LineSelection(position=position, is_first=True))) == ["e"]


def test_lines_have_their_time_and_stream() -> None:
    out, err = lines_of(
        framed(b"2026-01-01T00:00:00Z hello there\n") + framed(b"2026-01-01T00:00:01Z\n", 2)
    )
    assert (out.time, out.stream, out.text) == ("2026-01-01T00:00:00Z", "out", "hello there")
    assert (err.stream, err.text) == ("err", "")


def test_only_a_line_feed_ends_a_line() -> None:
    (line,) = lines_of(framed("2026-01-01T00:00:00Z 10 %\r20 %\u2028done\r\n".encode()))
    assert line.text == "10 %\r20 %\u2028done"


def test_the_last_whole_frames_are_kept() -> None:
    frames = [framed(b"%03d\n" % number) for number in range(10)]
    last = LastFrames(30)
    for start in range(0, 120, 7):
        last.feed(b"".join(frames)[start : start + 7])
    assert last.frames() == b"".join(frames[-2:])
    assert LastFrames(30).frames() == b""


# --- cost


class CountedBytes(bytes):
    """Bytes that count how many bytes their slices and concatenations copy."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, bytes):
            CountedBytes.copied += len(found)
            return CountedBytes(found)
        return found

    def __add__(self, other: Any) -> bytes:
        return CountedBytes(self._count(super().__add__(other)))

    def __radd__(self, other: bytes) -> bytes:
        return CountedBytes(self._count(other + bytes(self)))

    @staticmethod
    def _count(found: bytes) -> bytes:
        CountedBytes.copied += len(found)
        return found


@pytest.mark.parametrize("piece", [1000, 10**9])
def test_decoding_many_frames_copies_each_byte_a_few_times(piece: int) -> None:
    content = framed(b"2026-01-01T00:00:00Z x\n") * 5000
    CountedBytes.copied = 0
    decoder = FrameDecoder()
    parts = 0
    for start in range(0, len(content), piece):
        parts += len(decoder.feed(CountedBytes(content[start : start + piece])))
    assert parts >= 5000
    assert CountedBytes.copied < 3 * len(content)


@pytest.mark.parametrize("length", [2**32 - 1, 2**20])
def test_a_frame_of_any_length_is_returned_as_it_arrives(length: int) -> None:
    """No memory is allocated for the length in a header."""
    decoder = FrameDecoder()
    assert decoder.feed(b"\1\0\0\0" + length.to_bytes(4)) == []
    assert decoder.feed(b"x" * 1000) == [(1, b"x" * 1000, False)]


@pytest.mark.parametrize("is_framed", [True, False])
def test_a_line_without_end_is_cut(is_framed: bool) -> None:
    decoder = LineDecoder(is_framed=is_framed)
    if is_framed:
        decoder.feed(b"\1\0\0\0\xff\xff\xff\xff")
    for _ in range(100):
        assert decoder.feed(b"x" * PIECE_BYTES) == []
        assert len(decoder._partial) <= LINE_BYTES_MAX
    (found,) = decoder.finish()
    assert found == (1, b"x" * LINE_BYTES_MAX)
    last = LastLines(1)
    last.feed(framed(b"y" * 100_000))
    assert last.texts() == ("y" * LINE_CHARACTERS_MAX,)


def test_a_collector_keeps_no_more_than_the_selection() -> None:
    content = b"".join(timed(number // 100, "x" * 100) for number in range(2000))
    collector = LineCollector("app", LineSelection(lines_max=50, bytes_max=5000))
    for start in range(0, len(content), 4096):
        collector.feed(content[start : start + 4096])
        assert len(collector._lines) <= 50
        assert collector._bytes <= 5000
    assert collector.position == LogPosition(second=SECOND + 19, lines=100)


def test_a_full_page_ends_the_read_for_a_follower() -> None:
    collector = LineCollector("app", LineSelection(is_first=True, lines_max=10))
    assert collector.feed(b"".join(timed(1, str(number)) for number in range(10)))
    assert collector.position == LogPosition(second=SECOND + 1, lines=10)


def test_lines_of_a_later_run_end_the_read() -> None:
    collector = LineCollector("app", LineSelection(before_s=SECOND + 2))
    assert not collector.feed(timed(1, "a"))
    assert collector.feed(timed(2, "b"))
    assert texts(collector) == ["a"]


def test_a_busy_container_leaves_room_on_the_page_for_others() -> None:
    cursor = {"u/busy": LogPosition(second=1, lines=1)}
    builder = PageBuilder(LogQuery(cursor=cursor), sources=10)
    assert builder.selection("u/busy").lines_max == 500
    assert PageBuilder(LogQuery(tail=7), sources=10).selection("u/busy").lines_max == 7


def test_a_page_of_many_containers_is_bounded() -> None:
    builder = PageBuilder(LogQuery(tail=100), sources=50)
    line = LogLine(time="", container="app", stream="out", text="x")
    for number in range(50):
        builder.add(LogSource(f"u/{number}", [(number, line)] * 100, None))
        assert len(builder._lines) == 100
    assert len(builder.page().cursor) == 50


@given(st.lists(st.tuples(st.integers(1, 2), st.binary(max_size=40)), max_size=8), st.data())
def test_frames_are_decoded_from_pieces_of_any_size(
    frames: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    whole = b"".join(bytes([s, 0, 0, 0]) + len(b).to_bytes(4) + b for s, b in frames)
    decoder, found = FrameDecoder(), [b""]
    streams = []
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        for stream, part, is_end in decoder.feed(whole[:cut]):
            found[-1] += part
            if is_end:
                streams.append(stream)
                found.append(b"")
        whole = whole[cut:]
    assert list(zip(streams, found, strict=False)) == [frame for frame in frames if frame[1]]


def test_the_last_lines_include_both_streams() -> None:
    framed = b"".join(
        bytes([stream, 0, 0, 0]) + len(text).to_bytes(4) + text
        for stream, text in ((1, b"one\ntwo\n"), (2, b"three\n"))
    )
    last = LastLines(2)
    for start in range(len(framed)):
        last.feed(framed[start : start + 1])
    assert last.texts() == ("two", "three")

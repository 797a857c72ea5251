"""Dumps: a round trip returns the same planes, and damaged dumps are refused."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datum_compute.api.meta.codec import decode, encode
from datum_compute.store.dump import DumpError, decode_dump, encode_dump
from datum_compute.store.journal import LoadedPlane, MemoryJournal, ObjectKey
from datum_compute.store.store import Store

_TEXT = st.text(max_size=3)
_BODIES = st.dictionaries(_TEXT, _TEXT | st.integers(0, 9), max_size=3).map(encode)
_OBJECTS = st.dictionaries(
    st.builds(ObjectKey, _TEXT, _TEXT, _TEXT),
    st.tuples(st.integers(1, 2**40), _BODIES),
    max_size=4,
)
_PLANES = st.dictionaries(
    _TEXT, st.builds(LoadedPlane, st.integers(0, 2**40), _OBJECTS, st.booleans()), max_size=3
)


def two_planes() -> dict[str, LoadedPlane]:
    body = b'{"metadata":{"name":"web"},"note":"two\\nlines"}'
    key = ObjectKey("workloads.compute.datumapis.com", "default", "web")
    return {
        "project/a": LoadedPlane(7, {key: (5, body)}),
        "project/gone": LoadedPlane(3, {}, deleted=True),
    }


@settings(max_examples=20)
@given(_PLANES)
def test_a_decoded_dump_equals_the_planes_byte_for_byte(planes: dict[str, LoadedPlane]) -> None:
    assert decode_dump(encode_dump(planes)) == planes


def test_a_dump_does_not_depend_on_the_order_of_the_planes() -> None:
    planes = two_planes()
    assert encode_dump(dict(reversed(planes.items()))) == encode_dump(planes)


def test_a_truncated_dump_is_refused_at_every_length() -> None:
    whole = encode_dump(two_planes())
    for length in range(len(whole)):
        with pytest.raises(DumpError):
            decode_dump(whole[:length])


def test_a_dump_with_a_changed_byte_is_refused() -> None:
    whole = encode_dump(two_planes())
    for place in range(len(whole)):
        other = bytearray(whole)
        other[place] ^= 1
        with pytest.raises(DumpError):
            decode_dump(bytes(other))


def test_the_error_for_a_dump_of_a_newer_release_names_the_upgrade() -> None:
    head, _, rest = encode_dump(two_planes()).partition(b"\n")
    newer = encode({**decode(head), "format": 2})
    with pytest.raises(DumpError, match=r"newer release.*upgrade datum-compute"):
        decode_dump(newer + b"\n" + rest)


async def test_a_snapshot_during_writes_is_consistent_over_all_planes() -> None:
    """Each writer writes to one plane, waits until that is durable, and writes to the other."""
    journal = MemoryJournal()
    store = Store(journal)
    await store.load()
    open_store = asyncio.create_task(store.run())
    await asyncio.gather(store.create_plane("first"), store.create_plane("second"))

    async def write(name: str) -> None:
        for plane in ("first", "second"):
            key = ObjectKey("configmaps", "default", name)
            await store.put(plane, key, 0, lambda version: encode({"version": version}))

    async def take_snapshots(seen: list[tuple[int, int]]) -> None:
        while len(seen) < 50:
            found = decode_dump(encode_dump(store.snapshot_all()))
            one, other = set(found["first"].objects), set(found["second"].objects)
            assert other <= one, "the second write is visible without the first"
            seen.append((len(one), len(other)))
            await asyncio.sleep(0)

    seen: list[tuple[int, int]] = []
    await asyncio.gather(take_snapshots(seen), *(write(f"o-{n}") for n in range(40)))
    open_store.cancel()
    await asyncio.wait([open_store])
    assert store.snapshot_all() == await journal.load()

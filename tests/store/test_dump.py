"""A dump gives back exactly what went in, and nothing else passes for one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datum_compute.api.meta.codec import decode, encode
from datum_compute.store.dump import DumpError, dumped, undumped
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
def test_what_went_in_comes_out_byte_for_byte(planes: dict[str, LoadedPlane]) -> None:
    assert undumped(dumped(planes)) == planes


def test_the_order_in_which_objects_came_does_not_show() -> None:
    planes = two_planes()
    assert dumped(dict(reversed(planes.items()))) == dumped(planes)


def test_every_dump_that_was_cut_short_is_refused() -> None:
    whole = dumped(two_planes())
    for length in range(len(whole)):
        with pytest.raises(DumpError):
            undumped(whole[:length])


def test_no_byte_can_be_changed_unnoticed() -> None:
    whole = dumped(two_planes())
    for place in range(len(whole)):
        other = bytearray(whole)
        other[place] ^= 1
        with pytest.raises(DumpError):
            undumped(bytes(other))


def test_a_dump_of_a_newer_release_says_what_to_do() -> None:
    head, _, rest = dumped(two_planes()).partition(b"\n")
    newer = encode({**decode(head), "format": 2})
    with pytest.raises(DumpError, match=r"newer release.*upgrade datum-compute"):
        undumped(newer + b"\n" + rest)


async def test_what_is_read_while_others_write_is_of_one_moment_over_all_planes() -> None:
    """Each writer writes to one plane, waits until that is durable, and then to the other."""
    journal = MemoryJournal()
    store = Store(journal)
    await store.load()
    running = asyncio.create_task(store.run())
    await asyncio.gather(store.create_plane("first"), store.create_plane("second"))

    async def write(name: str) -> None:
        for plane in ("first", "second"):
            key = ObjectKey("configmaps", "default", name)
            await store.put(plane, key, 0, lambda version: encode({"version": version}))

    async def look(seen: list[tuple[int, int]]) -> None:
        while len(seen) < 50:
            found = undumped(dumped(store.contents()))
            one, other = set(found["first"].objects), set(found["second"].objects)
            assert other <= one, "an effect without its cause"
            seen.append((len(one), len(other)))
            await asyncio.sleep(0)

    seen: list[tuple[int, int]] = []
    await asyncio.gather(look(seen), *(write(f"o-{n}") for n in range(40)))
    running.cancel()
    await asyncio.wait([running])
    assert store.contents() == await journal.load()

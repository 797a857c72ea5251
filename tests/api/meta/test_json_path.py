"""Limits of paths: length, steps, and the number of cached compiled paths."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta import json_path as jsonpath
from datum_compute.api.meta.json_path import PATH_LENGTH_MAX, STEPS_MAX, check_path, compile_path


def test_a_path_has_a_limited_number_of_steps() -> None:
    check_path(".a" * STEPS_MAX)
    check_path(".a[0]['b/c']" * (STEPS_MAX // 3))
    with pytest.raises(ValueError, match=f"more than {STEPS_MAX} steps; use a shorter path"):
        check_path(".a" * (STEPS_MAX + 1))


def test_a_path_has_a_limited_length() -> None:
    check_path("." + "a" * (PATH_LENGTH_MAX - 1))
    with pytest.raises(ValueError, match=f"longer than {PATH_LENGTH_MAX} characters"):
        check_path("." + "a" * PATH_LENGTH_MAX)


@pytest.mark.parametrize("path", ["a", ".a[", ".a..b", ".a[0:2]", ".a[?(@.b)]", ".a b"])
def test_the_form_of_a_path_is_checked_like_a_compilation(path: str) -> None:
    with pytest.raises(ValueError, match="not supported") as checked:
        check_path(path)
    with pytest.raises(ValueError, match="not supported") as compiled:
        compile_path(path)
    assert str(checked.value) == str(compiled.value)


def test_an_error_repeats_only_the_beginning_of_a_path() -> None:
    with pytest.raises(ValueError, match="not supported") as raised:
        check_path("!" * PATH_LENGTH_MAX)
    assert len(str(raised.value)) < 400


def test_the_check_of_a_path_compiles_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_found: Any) -> Any:
        raise AssertionError("a step was compiled")

    monkeypatch.setattr(jsonpath, "_step", fail)
    check_path(".spec.checked[0].only")


def test_the_number_of_cached_compiled_paths_is_limited() -> None:
    for number in range(1000):
        compile_path(f".spec.kept{number}")
    assert compile_path.cache_info().currsize <= 256

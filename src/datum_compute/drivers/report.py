"""What a cell says of what runs its instances: which driver, whose engine, and does it answer."""

from __future__ import annotations

from datum_compute.api.codec import ApiStruct


class DriverReport(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """``words`` are the engine's name and version, or why it does not answer; ``why`` is how the
    driver was chosen; ``without_init`` counts containers that were to have an init process and run
    without, because the engine has none."""

    driver: str
    why: str = ""
    engine: str = ""
    answers: bool = True
    words: str = ""
    without_init: int = 0


SIMULATED = DriverReport(driver="simulated")

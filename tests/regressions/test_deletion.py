"""What is deleted goes, all of it and soon, however it was asked for."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from tests.regressions.platform import WEB, Platform, on_platform


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_a_workload_goes_soon_with_every_propagation_policy(policy: str) -> None:
    """Seen: with Orphan it stayed for half a minute after everything it had was gone."""

    async def story(platform: Platform) -> float:
        await platform.deploy()
        await platform.until_ready("web:1")
        started_s = asyncio.get_running_loop().time()
        await platform.project.delete(WORKLOAD, WEB, policy=policy)

        async def gone() -> bool:
            try:
                await platform.workload()
            except NotFound:
                return True
            return False

        await platform.until(gone, "the workload is gone")
        assert await platform.instances() == []
        assert (await platform.project.list(DEPLOYMENT)).items == []
        return asyncio.get_running_loop().time() - started_s

    assert on_platform(story, boot_s=0.0) < 5

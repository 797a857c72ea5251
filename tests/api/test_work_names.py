"""Names of Works, on the embedded hub and on Karmada."""

from __future__ import annotations

from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import work_name, work_names


def test_both_hubs_names_are_known() -> None:
    """The latter are as Karmada 1.18 was seen to give them."""
    ref = Ref("ns-0d6c7192de9c", "web")
    assert work_names(DEPLOYMENT, ref) == (work_name(DEPLOYMENT, ref), "web-5f877fcc8b")
    assert work_names(NAMESPACE, Ref("", ref.namespace))[1] == "ns-0d6c7192de9c-8477cf5f68"


def test_equal_names_in_two_namespaces_are_two_works() -> None:
    here, there = (work_names(DEPLOYMENT, Ref(space, "web")) for space in ("ns-a", "ns-b"))
    assert not set(here) & set(there)

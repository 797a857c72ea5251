"""Level-triggered controller runtime, after controller-runtime and client-go, for many planes.

It has no decisions and refers to no kind except Lease and Event. Start with ``controller.py``, then
``cached_client.py``; docs/concepts/runtime.md is the guide and examples/ordered_set a tutorial.
"""

"""Level-triggered controller runtime for many planes, modeled on controller-runtime and client-go.

A plane is a Kubernetes API. The runtime refers to no kind except Lease and Event. Start with
``controller.py``, then ``cached_client.py``. The guide is docs/concepts/runtime.md, the tutorial
examples/ordered_set.
"""

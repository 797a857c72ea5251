"""Priority and fairness: which waiting request gets the event loop next, and which gets 429.

This package does not depend on kinds, verbs or the wall clock; only ``level_of`` names a resource.
Start with ``fair_queue.py`` (priority levels and the order, a pure data structure), then
``control.py`` (the queue on an event loop, with its limits).
"""

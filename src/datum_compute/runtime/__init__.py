"""A level-triggered controller runtime for many planes.

watch event -> indexed cache -> map to Key(plane, ref) -> deduplicating queue -> worker ->
reconcile -> Done, Later or Terminal. An exception is a retry. Only ``worker.py`` interprets
the outcome.

May not enter: the name of any kind (but Lease and Event, its own instruments), decisions.
A controller is a value (``controller.py``): a name, the kind it is for, what else wakes it, and
one async function.
"""

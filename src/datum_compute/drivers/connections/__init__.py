"""What connections mean for machines: idle machines sleep, and drained machines stop.

``idle_scaler.py`` puts idle machines to sleep and wakes them, ``activations.py`` records the wakes,
and ``draining.py`` wraps a driver so that a machine without connections is removed or suspended.
The ingress reports connections and never calls a driver.
"""

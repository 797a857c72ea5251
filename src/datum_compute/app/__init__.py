"""Process entry points and wiring: everything is constructed here, by hand, top to bottom.

May not enter: decisions. Only this room reads the real clock, real randomness and the
environment, and passes them down.
Start reading at ``wiring.py``.
"""

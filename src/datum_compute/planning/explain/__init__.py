"""Why an object is not ready, and what to do about it, computed from the objects alone.

Start with explain.py, which finds the chain of causes; advice.py names the next step.
"""

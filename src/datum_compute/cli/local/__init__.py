"""The verbs of `local`: the whole platform on this machine.

Start with up.py. Only this package imports app.
"""

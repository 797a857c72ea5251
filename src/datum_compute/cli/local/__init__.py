"""The commands of `local`, which run the whole platform on this machine.

Start with up.py. Only this package imports app.
"""

"""Hostile requests: each is small enough to be accepted and expensive if nothing limits its work.

``corpus.py`` lists them. ``tests/hostile`` checks the response and the memory of each, and
``make bench hostile`` also measures how long each blocks the event loop.
"""

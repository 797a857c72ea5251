"""Hostile requests: each is small enough to be accepted and expensive if nothing limits its work.

``corpus.py`` lists them. ``test_corpus.py`` checks the response and the memory of each;
``python -m bench hostile`` also measures how long each blocks the event loop.
"""

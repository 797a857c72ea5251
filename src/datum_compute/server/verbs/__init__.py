"""One module per verb, and the steps that verbs share: prepare, admit, commit.

Start with create.py, then prepare.py (from the body to the object that is stored) and commit.py.
"""

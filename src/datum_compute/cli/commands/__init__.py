"""One module per verb, ending in `COMMAND = ...` and listed in ../groups.py.

Start with deploy.py. A verb parses its options, works on one plane and prints.
"""

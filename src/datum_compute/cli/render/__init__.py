"""Output: tables, lists, the live display, prompts and JSON documents.

Start with output.py. Data goes to stdout, everything else to stderr.
"""

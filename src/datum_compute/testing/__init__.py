"""What tests and users of the house need: the simulator, builders and conformance suites.

May not enter: src may not import it.
"""

"""Modules that move to their new packages next."""

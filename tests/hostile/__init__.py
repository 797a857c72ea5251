"""The server limits the work of each hostile request of ``testkit/hostile``."""

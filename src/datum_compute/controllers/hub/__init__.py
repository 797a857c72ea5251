"""The embedded stand-in for Karmada: reads its policies, writes its bindings and works."""

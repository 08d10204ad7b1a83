"""Proof of what Postroom promises. Start with `contract`."""

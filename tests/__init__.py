"""Proof of what the house promises. Start with `contract`."""

"""Rooms in folders of files: what is only true of them. What is true of every store stands in tests/contract."""

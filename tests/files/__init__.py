"""Tests of what is only true of rooms in folders of files. What every store promises is in tests/contract."""

"""Postroom's channel `mailbox`, where nanobot looks for channels."""

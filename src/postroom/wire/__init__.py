"""Protocols without sockets: what can be asked over a wire, in which words, and what is answered.

It takes plain values and a room, and gives plain values back. It refuses to know sockets, event loops and threads:
those are the business of the rims above (`ipc`, `web`, `mcp`). Below it stands the front door, `room`.

| file | holds |
|---|---|
| `table.py` | what a method is; how what was said is checked against its row |
| `plain.py` | values of the house as plain JSON |
"""

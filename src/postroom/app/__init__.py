"""`postroom serve`: puts the parts together, starts them and stops them. It holds no rule of its own.

app           opens the room and runs everything in one event loop
options       flags, POSTROOM_* and INBOX_* variables; the file of peers
unit          the systemd unit
"""

"""The formats of the three designs that keep mail as files.

A layout says how a letter is written, and where it lies in which state. It does no I/O, and knows no other layout.

    paths     where letters lie, and how the names of their files begin and end
    base      what a layout is, and what all of them share
    nanobot   `<agent>/inbox/*.msg.json`, `processed/`
    chipset   `mail/<agent>/<time>-<from>.json`, `archive/`
    swarm     `<agent>/inbox/MSG-*.json`, `archive/`
"""

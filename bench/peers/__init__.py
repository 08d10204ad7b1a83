"""What a user would pick instead, doing the same work on the same disk, taking turns with Postroom.

    python -m bench.peers              all of it, some minutes; writes docs/peers.md
    python -m bench.peers --quick      two short rounds; writes nothing
    python -m bench.peers --only redis

One file per peer: read one, and you know how it was set up. `client` is what a client process does, `compare` lets
the peers take turns, `page` writes the table. Servers run on loopback with a secret, as an unprivileged user, and
keep their data beside the bench, on the disk of the working tree.
"""

"""The rules of rings, as properties of whole histories: of the rules alone, and of rooms with all that keeps them.

`witness` knows the rules and nothing of how they are kept, `histories` says what may happen. Each rule has a twin:
one line of the real code is made wrong, and the same witness must find it out.
"""

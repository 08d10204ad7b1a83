"""What users see, pinned: public Python, the command line, the wire, files on disk.

Each test compares what the program does now with a golden file in `golden/`. A difference is a change that users
notice. If the change is wanted, name it in the changelog and rewrite the golden files:

    POSTROOM_WRITE_PINS=1 pytest tests/pinned

These tests use public seams only (the `postroom` package and its documented modules, processes, sockets, files),
so that internal modules can be renamed and merged without touching them.
"""

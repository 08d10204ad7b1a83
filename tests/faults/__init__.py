"""The fault suite: what is promised holds while processes are killed, disks fail and machines stop.

`make test` runs the short form, `make faults` the long one (POSTROOM_TEST_LONG=1).

A ledger decides (`ledger.py`). It lies outside the room; each process writes down what it is about to try, and
what it was promised, one line at a time. Afterwards an audit (`audit.py`) holds the room against the ledger and
complains about every promise that was not kept.

Every fault test has a twin: the same fault over a store with a planted bug, and a test that the audit finds it.
Chance plays no part there: a twin breaks its promise every time. Most bugs can be planted in any store (`bugs.py`,
`clock_bugs.py`, `load_bugs.py`); those of its own kind a store brings along.

A new store joins by one line in `kinds.py`; `test_joining.py` says what it must bring.

What a fault needs and this machine has not (strace, root, a file system) skips that test, and says so. A run in
which all tests of a file were skipped fails (`conftest.py`).
"""

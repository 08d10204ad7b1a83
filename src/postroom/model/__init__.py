"""What mail is: letters, deliveries, cards, records, and the tables that say how they may move.

Pure values. This room refuses to know files, clocks, randomness or policy: what a rule says is decided
above it in `policy`, where things are kept is decided beside it in `store`. Below it is only `errors`.
Values hold no cycles, so the frequent ones are kept from the garbage collector (`gc=False`).

Reading order: `message` (what is written), `delivery` (what moves), `task`, `thread`, `card`, `record`,
`query`, `search` and `change` (how stores are asked), `words` (what text is made of), `names` and `values` (what
may enter), `codec` (JSON).
"""

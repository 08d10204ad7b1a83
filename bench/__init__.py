"""How fast the post room is, as ratios against what this disk can do.

    python -m bench            every measure, a few minutes
    python -m bench --quick    fewer rounds
    python -m bench --only send

One file per theme. Candidates of one comparison take turns within a run, and a line reports the median of the
ratios of the rounds: so a disturbed machine disturbs both sides. Nothing here fails; it reports.
"""

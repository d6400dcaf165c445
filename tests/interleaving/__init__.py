"""Every pair of verbs, interleaved: one is halted before each of its statements, the other runs whole in the gap.

Two real connections, real statements on real rows. A verb that waits for a lock which the halted one holds goes on
when that one does. Afterwards everything is driven to its end, and a judge asks the rows, and holds them against what
the vendor has.

    python -m tests.interleaving           some of the pairs, as in `make test-all`
    python -m tests.interleaving --long    all of them
"""

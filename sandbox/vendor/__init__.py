"""A vendor of our own: a separate HTTP process with its own clock and its own books.

It speaks the protocol of the `http` adapter and knows nothing of the product; nothing in the product knows
that it is a simulation. The demo, the tests, the chaos run and the benchmarks ask its books, not ours,
whether anything was sent twice, lost or sent too fast. It needs no Django: `python -m sandbox.vendor` starts it.
"""

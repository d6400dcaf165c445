"""A simulated vendor: a separate HTTP process with its own clock and its own books.

It speaks the protocol of the `http` adapter and imports nothing of the product, which cannot tell it from a real one.
The demo, the tests, the chaos run and the benchmarks read its books, not ours, to see whether anything was sent twice,
lost or sent too fast. It needs no Django: `python -m sandbox.vendor` starts it.
"""

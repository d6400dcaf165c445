"""A simulated vendor: a separate HTTP process with its own clock and books.

It speaks the protocol of the `http` adapter and imports nothing from the product, which cannot tell it from a real one.
The demo, tests, chaos run and benchmarks check its books, not ours, for anything sent twice, lost or too fast. It needs
no Django: `python -m sandbox.vendor` starts it.
"""

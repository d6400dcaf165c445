"""Everything is killed, cut off and started again while mail goes out: `python -m tests.chaos`, or `make chaos`."""

"""Routes: what was never called goes by the next vendor of its campaign's route when its own takes no work.

entries: which vendors of a route take work, and why not. moving: the one verb. whose: by which credential a message
goes, and what moved.
"""

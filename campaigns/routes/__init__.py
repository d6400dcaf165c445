"""Routes: what a vendor has not taken goes by the next one of its campaign's route when it takes no work.

entries: which vendors of a route take work, and why not. moving: the one verb. whose: by which credential a message
goes, and what moved.
"""

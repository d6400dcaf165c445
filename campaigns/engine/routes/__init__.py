"""Routes: when a vendor takes no work, its uncalled messages move to the next vendor of the route.

entries: which vendors of a route take work, with reasons. moving: moves messages to another vendor. whose:
the credential that sends a message, and the record of moves.
"""

"""Whom nobody writes to again: asked at the import, at each claim, at a retry and before a doubt's repeat.

digests finds an address without knowing it; lists adds, lifts and erases suppressions, in bulk; refused adds whom a
vendor refused as unknown; comparing ends the messages of an import whose recipients are suppressed; recent tells a
sender what is newer than that. links are what recipients unsubscribe with; unsubscribing is what they decide.
"""

"""Addresses that nobody writes to again, checked at import, at each claim, at a retry and before a doubt is repeated.

- digests finds an address without storing it.
- lists adds, lifts and erases suppressions, in bulk.
- refused adds recipients that a vendor refused as unknown.
- comparing ends an import's messages to suppressed recipients; recent finds newer suppressions for a sender.
- links makes and reads unsubscribe links; unsubscribing carries out what recipients decide.
- suppressing: what operators and owners suppress and lift.

Models: models/suppressions.py. Doors: admin/, api/, management/, pages/ (of owners, and of
recipients who unsubscribe).
"""

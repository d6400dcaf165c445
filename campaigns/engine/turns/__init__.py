"""Whose turn it is at a vendor: classes first, then start-time fair queueing over the units that sponsors were given.

Urgent mail goes before usual mail, and usual mail before bulk mail (vendors/mail_classes.py). A floor keeps the lower
classes alive: each one saves up a share of everything that the vendor is given (`ClassCredit`), and while it has credit
its jobs come first.

Rows of ClassTurn hold the virtual times within a class, so all processes agree, and a restarted one too. A sponsor's
virtual time grows by the units of its calls, divided by its weight. The clock of a class at a vendor is the virtual
time of the sponsor that had the last turn, or was charged last while no other one waited, or the least of all that had
work and a turn before the last look. A sponsor that comes back from a pause starts there, so it has saved nothing up. A
waiting sponsor is never behind the clock.

A mailcaster takes the job of a sponsor without a running leaf, and of those the one with the least virtual time
(`order.py`). One leaf is enough for a sponsor's share of a limit, as permits go by weights
(`vendors/limits/shares.lua`). Only if several sponsors or classes wait does that read more than one probe of an index,
or write. A running leaf is taken to be given one more slice, since senders store the given units only once a second
(`charge`), and when a leaf has had its portion. So units granted to a process are charged late; a killed process never
charges the last ones.

A sponsor that waits gets the place of a leaf (`choose_leavers`): at the next look, of a lower class, or of a sponsor
with another one; after a time slice, or a portion of units where a limit binds (`Portions`), of a sponsor ahead of it.
All processes decide from the same rows, so each sponsor that waits gets one leaf's place in a look.
"""

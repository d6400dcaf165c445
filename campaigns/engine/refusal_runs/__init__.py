"""Runs of equal refusals over one credential. They concern the account or one sponsor's mail, not the recipients.

A vendor may refuse everything with words that no rule knows. Every refusal that may be our fault extends two runs: of
its credential, and of its sponsor's mail over that credential. Job and sender do not matter. Another wording or an
acceptance ends a run. An answer to any sponsor's mail ends the credential's run; a sponsor's run ends only with an
answer to that sponsor's own mail. Refusals through the recipients' fault are ignored. A run of EQUAL_REFUSALS is full:
claims wait until no sender has contradicted it for CONFIRMED.

A sponsor's full run pauses the campaigns in it; other sponsors' mail continues. A credential's full run pauses the
credential. It is full only if the account is the likelier cause. Either one sponsor alone may use it, or the refusals
suffice for a run even without those of the sponsor with the most.

The sweep puts the refused messages of a full run back: they wait again under a new reference, also in a job that was
logged, and a resolution by `mailhub` records it. A message is put back only once, so a resumed campaign gets past
refusals that prove true. Messages that a person sends again after a refusal may be refused again through their
recipients' fault. So a run of them is full only at RETRIED times the length.

A run is a row, written in the transaction that stores the answers. A killed sender therefore loses none of it. Calls
still open when a run is put back were allowed before the pause, so they belong to that run. Another row
(`campaigns_refusaltail`) keeps their messages until they are answered. Those refused in the same words are put back.

- run_rows: the rows and their statements.
- known_runs: the knowledge of one sender process, and the statement that extends a run.
- putting_back: the sweep puts messages back.
"""

"""Runs of equal refusals over one credential. They concern the account or one sponsor's mail, not the recipients.

A vendor may refuse everything with words that no rule knows. Every refusal that may be our fault extends two runs: of
its credential, and of its sponsor's mail over that credential. Job and sender do not matter. Another wording or an
acceptance ends a run: of the credential whoever it comes to, of a sponsor only his own. Refusals that are the
recipients' fault are passed by. A run of EQUAL_REFUSALS is full: claims wait until no sender has contradicted it for
CONFIRMED.

A sponsor's full run pauses the campaigns in it; other sponsors' mail goes on. A credential's run is full only if the
account is the likelier cause: one sponsor alone may use it, or the refusals of other sponsors are as many as a run
needs, without those of the sponsor that has most. It pauses the credential.

The sweep puts the refused messages of a full run back: they wait again under a new reference, also in a job that was
logged, and a resolution by `mailhub` records it. A message is put back once only, so whoever resumes gets past refusals
that were true after all. Messages that a person sends again after a refusal may be refused again for their recipients'
fault, so a run of them is full when it is RETRIED times as long.

A run is a row, written in the transaction that stores the answers. A killed sender therefore loses none of it. Calls
that are open when the run is put back were allowed before the pause, so they belong to it. Another row
(`campaigns_refusaltail`) keeps their messages until they are answered. Those refused in the same words are put back.

- run_rows: the rows and their statements.
- known_runs: what one sender process knows, and how it extends a run.
- putting_back: what the sweep puts back.
"""

"""The condition of vendors, credentials and receiving domains: works, failing, shut, silent, or never tried.

Every door reads it here, so that no two of them disagree.

- `values`: `Condition`, the answer: kind, beginning, number of tries, last answer, end, reason, the person who can mend
  it, and the button or command. `describe_condition` says it in a sentence.
- `reading`: `conditions_of_credentials(ids)` and `conditions_of_vendors(ids)`, one statement for any number.
- `feeding`: senders record the outcomes of calls. They write a row at most once a second, and directly on a change.
- `brake`: stops the calls over a credential after several doubts in a row, and lets one probe at a time through.

A condition is *works* only after a good answer to a call at the present address and account. Nothing expires: neither
time nor a restart makes a failing credential work.
"""

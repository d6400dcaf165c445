"""The feature of work that comes in: lists of recipients, campaigns, drafts (step 1).

- intake: reads and checks a list, stores all of it as a campaign or nothing.
- drafts: campaigns made step by step on pages.
- estimates: price, size and end of a campaign that is not stored yet.
- content_options, previewing, hidden_rows: what commands with lists share.

Models: models/campaigns.py, drafts.py. Doors: admin.py, api/ (requests to send), management/,
pages/ (the wizard).
"""

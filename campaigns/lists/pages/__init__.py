"""The wizard: makes a campaign in steps, each with its own URL, kept as a draft; campaigns/lists/drafts does the work.

- drafts: the list of drafts, copies of campaigns, and the steps' shared code.
- message, recipients, preview, check: the steps.
- uploads: large request bodies.
"""

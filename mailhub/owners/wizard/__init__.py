"""The wizard: a campaign in steps, each an address of its own, kept as a draft; campaigns/drafts does the work.

drafts: the list of drafts, copies of campaigns, and what all steps share. message, recipients, preview, check: the
steps. uploads: large bodies.
"""

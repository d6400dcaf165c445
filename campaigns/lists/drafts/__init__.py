"""Campaigns that somebody makes step by step: saved at each step, checked in the background, stored once.

- keeping: what pages save, and which drafts are deleted.
- blocks: files stored in parts.
- columns: the meaning of each column of a list.
- contents: the campaign a draft will become, as far as it is known.
- checking: the check of the list, by the process with the draft's fence.
- sending: the campaign, made once.
- copying: a new draft from a campaign.

The wizard's pages use drafts; `send_campaign` and the HTTP API do the same without. All of them check and store through
campaigns/lists/intake.
"""

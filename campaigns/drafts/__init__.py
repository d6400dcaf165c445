"""Campaigns that somebody makes step by step: kept at each step, checked in the background, stored once.

keeping: what pages save, and what is deleted. blocks: files in parts. columns: which column is what. contents: what it
will be, as far as it is known. checking: the list, by whoever holds the draft's fence. sending: the campaign, made
once. copying: a draft of a campaign that was made. What a page of the wizard does, `send_campaign` and the HTTP API do
without a draft: all check and store by campaigns/intake.
"""

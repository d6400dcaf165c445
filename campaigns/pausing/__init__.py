"""Campaigns that wait for somebody: paused by a person or by their own rates, or after their first messages.

pauses: pause and resume, in the rows. rates: which campaigns pause themselves, and why.
"""

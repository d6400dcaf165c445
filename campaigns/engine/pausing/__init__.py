"""Pauses of campaigns: by a person, by their own rates, or after their first messages.

pauses: pause and resume in the rows. rates: which campaigns pause themselves, and why.
"""

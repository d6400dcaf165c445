"""Quotas: how much a sponsor may send, in all or at a vendor, in flight, a day or a month (decision 64).

- book counts what is used, from the accounts and the unfinished jobs.
- admission refuses new work and holds jobs, one decision about a sponsor at a time.
"""

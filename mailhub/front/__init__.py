"""The HTTP front (document 002): takes work for a vendor, or says when to come back; gives the results later.

api: the endpoints put together. keys, pace: who may ask, and how often. messages, bodies, checking, allowance, orders,
counter: the way in. sessions, services, webhooks: the way out. receipts: what vendors report. problems: every error in
one form. roster, forecasts: what is known of the vendors, read once a second. bells: the queue.
"""

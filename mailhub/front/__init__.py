"""The HTTP front (document 002): takes work for a vendor, or says when to come back; gives the results later.

api: the endpoints put together. keys, rate_limits: who may ask, and how often. messages, request_bodies, checking,
send_orders, accepting, batcher: the way in. sessions, services, webhooks: the way out. delivery_reports: what vendors
report. problems: every error in one form. vendor_cache, forecasts: what is known of the vendors, read once a second.
notifier: tells the vendors' queues of new work.
"""

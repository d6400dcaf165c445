"""The HTTP API (document 002): accepts work for a vendor or says when to try again, and gives the results later.

api: all endpoints together. keys, rate_limits: authorisation, and how often a key may ask. messages, request_bodies,
checking, send_orders, accepting, batcher: requests to send. sessions, webhooks: the clients' other endpoints. vendors:
the list of vendors, and their delivery reports. problems: errors. vendor_cache, forecasts: the state of the vendors,
read about once a second. notifier: notifies the vendors' queues of new work.
"""

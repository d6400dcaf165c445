"""The HTTP API (document 002): accepts work for a vendor or says when to try again, and reports results later.

`api`: all endpoints together. `keys`, `rate_limits`: authorisation and rate limits of keys. `messages`,
`request_bodies`, `checking`, `send_orders`, `accepting`, `batcher`: requests to send. `sessions`, `webhooks`: the
clients' other endpoints. `vendors`: the list of vendors and their delivery reports. `problems`: errors. `vendor_cache`,
`forecasts`: the state of vendors, read about once a second. `notifier`: notifies vendors' queues of new work.
"""

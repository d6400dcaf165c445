"""The HTTP API (document 002): accepts work for a vendor or says when to try again, and reports results later.

`api`: all endpoints together. `messages`, `checking`, `send_orders`, `accepting`, `batcher`: requests to send.
`sessions`, `webhooks`: the clients' other endpoints. `vendors`: the list of vendors and their delivery reports.
`forecasts`: when vendors can start, read about once a second. `notifier`: notifies vendors' queues of new work. What
endpoints share is in campaigns/doors/front.
"""

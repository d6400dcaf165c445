"""The HTTP API (document 002): accepts work for a vendor or says when to try again, and reports results later.

`api`: all endpoints together, each from its feature's `api`. `broker_check`: whether the broker answers. What endpoints
share is in campaigns/doors/front.
"""

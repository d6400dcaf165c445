"""The parts that all endpoints of the API share (document 002); the endpoints are in their features' `api`.

`keys`, `rate_limits`: authorisation and rate limits of keys. `body_gate`, `request_bodies`: bodies, their sizes,
answers kept for repeats. `queries`, `cursors`: parameters, pages of lists. `schemas`, `session_links`: shared members
of answers. `problems`: errors. `vendor_cache`: vendors, read about once a second. `batcher`: many requests in one
transaction.
"""

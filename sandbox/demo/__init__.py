"""`manage.py demo`: the whole product at work on one screen, with vendors that keep books of their own.

home: the demo's own home and servers. processes: what it starts. setup: vendors, casters and lists. scenario: what
happens, act by act. snapshot: what is seen of it. screen, report: how that is shown. verify: whether both sides agree.
"""

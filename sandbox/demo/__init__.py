"""`manage.py demo`: the whole product at work on one screen, with vendors that keep books of their own.

home: the demo's own home and servers. processes: what it starts. setup: vendors, casters and lists. scenario: what
happens. snapshot: the state at one moment. screen, report: its display. verify: whether rows and books agree.
"""

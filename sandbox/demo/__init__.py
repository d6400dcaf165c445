"""`manage.py demo`: the whole product at work on one screen, with vendors that keep books of their own.

ground: the demo's own home and servers. processes: what it starts. stage: vendors, casters and lists. story: what
happens, act by act. facts: what is seen of it. picture, lines: how that is shown. books: whether both sides agree.
"""

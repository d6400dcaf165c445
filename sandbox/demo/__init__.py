"""`manage.py demo`: the whole product at work on one screen, with vendors that keep books of their own.

home: the demo's own home and servers. processes: what it starts. story: what any story has, and how it is played.
setup, scenario, document_panels: the documents' story. channels: that of letters, SMS and e-mail side by side.
logins: who may try it in a browser. snapshot: the state at one moment. screen, report: its display.
verify: whether rows and books agree.
"""

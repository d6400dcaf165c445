"""The feature of recipients who answer: bounces, complaints, STOP, START, HELP, replies, and the search for one person.

- bounces: mail that comes back. inbound: SMS that come in; HELP is answered by a campaign, so it stands above lists.
- answers: texts that no rule is sure of; unread_answers: what a person decides about them.
- finding: everything known about one recipient.

Who is not written to is a list of its own, below: campaigns/suppression. Models: models/answers.py, message_events.py.
Doors: admin.py, api/, management/, pages/.
"""

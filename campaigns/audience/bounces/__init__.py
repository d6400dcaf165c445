"""Mail that comes back: bounces, complaints, mails that unsubscribe, and much else.

- parser classifies a mail; kinds interprets a bounce's code and text.
- replies reads what a person wrote.
- inbound finds the message, stores the event and counts every mail.
- receiver accepts mails over SMTP or LMTP; mailbox reads them by IMAP.
"""

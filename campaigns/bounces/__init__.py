"""What comes back of e-mails: bounces, complaints, mails that unsubscribe, and much that is none of these.

parser reads a mail and says what it is; kinds: what a bounce's code and text mean; inbound finds the message, stores
what happened and counts every mail; receiver takes mails over SMTP or LMTP; mailbox reads them by IMAP.
"""

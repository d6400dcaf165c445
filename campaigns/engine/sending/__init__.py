"""Step 6, send: a sender takes a leaf, streams its messages to the vendor, and releases it (documents 000 and 001)."""

from campaigns.engine.sending.sender import Sender, Sent, send_claimed_job

__all__ = ["Sender", "Sent", "send_claimed_job"]

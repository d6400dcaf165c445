"""The sender: takes a leaf job, streams its messages to the vendor, lets go (documents 000 and 001, steps 4 to 6)."""

from campaigns.sending.sender import Sender, send

__all__ = ["Sender", "send"]

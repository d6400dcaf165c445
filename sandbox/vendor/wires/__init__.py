"""Protocols of a sandbox vendor: the JSON of the `http` adapter, or those of Twilio, Lob, Amazon SES or Mailgun.

A wire reads the letters of a call and writes answers and reports, as far as mailhub uses the vendor's API; other
requests get a 404. The fate of letters, the books, the throttle and all misbehaviour are the same for each.
"""

from importlib import import_module

from sandbox.vendor.wires.base import VendorWire

WIRES = {
    "json": "base.VendorWire",
    "twilio": "twilio.Twilio",
    "lob": "lob.Lob",
    "ses": "ses.Ses",
    "mailgun": "mailgun.Mailgun",
}


def wire(name: str, login: str) -> VendorWire:
    """Return the wire. `login`: USER:PASSWORD of callers; empty: anybody. Raises ValueError with one sentence."""
    module, _, kind = WIRES[name].partition(".")
    made: VendorWire = getattr(import_module(f"{__name__}.{module}"), kind)(login)
    return made

"""How a sandbox vendor is spoken to: by the JSON of the `http` adapter, or as Twilio, Lob, Amazon SES or Mailgun are.

A wire reads the letters of a call and writes answers and reports, as far as mailhub uses the vendor's API; who asks for
more is answered 404. What becomes of a letter, the books, the throttle and all misbehaviour are the same for each.
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
    """login: USER:PASSWORD of who may call it; empty: anybody. Raises ValueError with one sentence."""
    module, _, kind = WIRES[name].partition(".")
    made: VendorWire = getattr(import_module(f"{__name__}.{module}"), kind)(login)
    return made

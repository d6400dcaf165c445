"""Normalises phone numbers of any spelling to E.164: of recipients, of suppressions and of senders of SMS to us.

A region is a country by ISO 3166, like GB. It gives the form of numbers without + and country code.
"""

import re
import unicodedata

import phonenumbers
from django.core.exceptions import ValidationError

from campaigns.given_texts import given_address
from vendors.said import Said, gettext_noop

WRONG = gettext_noop("%(number)s is not a phone number that can get a message: wrong length or an extension")
WRONG_THERE = gettext_noop(
    "%(number)s is not a phone number that can get a message in %(region)s: wrong length or an extension"
)
# phonenumbers reads letters as keys of a telephone, drops text before a number, and cuts off text behind it. So a cell
# with anything but digits and the signs usual between them is rejected first.
SIGNS = re.compile(r"[(\[]?\+?[\d\s()\[\]./~\u00b7\u2010-\u2015\u2212-]*\d[)\s]*")
SCHEME = re.compile(r"\Atel:\s*", re.IGNORECASE)  # RFC 3966, as copied from web pages and address books
FOREIGN = re.compile(r"[^\d\s()\[\]+./~\u00b7\u2010-\u2015\u2212-]+")


def e164(text: str, region: str = "") -> str:
    """Return the number in E.164 if the whole text is one number of a length that exists in its country.

    Drops invisible signs and a leading "tel:", and reads digits of every script. Raises ValueError with a sentence.
    """
    shown = repr(text if len(text) <= 80 else text[:77] + "...")
    typed = SCHEME.sub("", given_address(unicodedata.normalize("NFKC", text)))
    if not SIGNS.fullmatch(typed):
        raise ValueError(Said("%(number)s is not a phone number: %(why)s", number=shown, why=_oddity(typed)))
    try:
        number = phonenumbers.parse(typed, region or None)
    except phonenumbers.NumberParseException as error:
        raise ValueError(
            Said("%(number)s is not a phone number: %(why)s", number=shown, why=_hint(typed, region, error))
        ) from error
    _drop_old_mexican_prefix(number)
    possible = phonenumbers.is_possible_number_with_reason(number) == phonenumbers.ValidationResult.IS_POSSIBLE
    if number.extension or not possible:
        is_there = region and "+" not in typed
        raise ValueError(Said(WRONG_THERE if is_there else WRONG, number=shown, region=region))
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def _oddity(typed: str) -> str:
    """Describe the part of the text that cannot belong to a number."""
    found = FOREIGN.search(typed)
    if found:
        word = found[0] if len(found[0]) <= 20 else found[0][:17] + "..."
        return Said("%(word)s is no part of a number; leave out everything but the number", word=repr(word))
    if not any(one.isdecimal() for one in typed):
        return Said("it has no digits")
    return Said("it is not one number; leave out everything but one number")


def _drop_old_mexican_prefix(number: phonenumbers.PhoneNumber) -> None:
    """Drop the 1 after Mexico's country code: mobile numbers had one until 2019, and address books keep it."""
    digits = str(number.national_number)
    if number.country_code == 52 and len(digits) == 11 and digits.startswith("1"):
        number.national_number = int(digits[1:])


def _hint(typed: str, region: str, error: Exception) -> str:
    if region or "+" in typed:
        return str(error)
    return Said("it must start with + and the country code, or name the region whose numbers are written without them")


def known_region(region: str) -> None:
    """Raise ValidationError if no numbers are known for this region."""
    if region not in phonenumbers.SUPPORTED_REGIONS:
        raise ValidationError(
            Said("%(name)s is not a region: two capital letters of ISO 3166, like GB", name=repr(region))
        )

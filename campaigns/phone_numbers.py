"""Phone numbers of any spelling in their one form, E.164: of recipients, of suppressions and of who writes to us.

A region is a country as ISO 3166 has it, like GB: in whose form a number without + and country code is written.
"""

import phonenumbers
from django.core.exceptions import ValidationError

WRONG = "wrong length or an extension"


def e164(text: str, region: str = "") -> str:
    """The number in E.164, if its length exists in its country. Raises ValueError with a sentence."""
    shown = repr(text if len(text) <= 80 else text[:77] + "...")
    try:
        number = phonenumbers.parse(text, region or None)
    except phonenumbers.NumberParseException as error:
        raise ValueError(f"{shown} is not a phone number: {_hint(text, region, error)}") from error
    possible = phonenumbers.is_possible_number_with_reason(number) == phonenumbers.ValidationResult.IS_POSSIBLE
    if number.extension or not possible:
        of = f" in {region}" if region and not text.startswith("+") else ""
        raise ValueError(f"{shown} is not a phone number that can get a message{of}: {WRONG}")
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def _hint(text: str, region: str, error: Exception) -> str:
    if region or text.startswith("+"):
        return str(error)
    return "it must start with + and the country code, or name the region whose numbers are written without them"


def known_region(region: str) -> None:
    """Raises ValidationError for a region whose numbers nobody knows."""
    if region not in phonenumbers.SUPPORTED_REGIONS:
        raise ValidationError(f"{region!r} is not a region: two capital letters of ISO 3166, like GB")

"""Normalises phone numbers of any spelling to E.164: of recipients, of suppressions and of senders of SMS to us.

A region is a country by ISO 3166, like GB. It gives the form of numbers without + and country code.
"""

import re
import unicodedata
from functools import cache

import phonenumbers
from django.core.exceptions import ValidationError

from campaigns.texts.given_texts import given_address
from vendors.said import Said, gettext_noop

WRONG = gettext_noop("%(number)s is not a phone number that can get a message: wrong length or an extension")
WRONG_THERE = gettext_noop(
    "%(number)s is not a phone number that can get a message in %(region)s: wrong length or an extension"
)
NO_SMS = gettext_noop("%(number)s is a number that gets no messages, such as one for calls at a higher price")
# phonenumbers reads letters as keys of a telephone, drops text before a number, and cuts off text behind it. So a cell
# with anything but digits and the signs usual between them is rejected first.
SIGNS = re.compile(r"[(\[]?\+?[\d\s()\[\]./~\u00b7\u2010-\u2015\u2212-]*\d[)\s]*")
SCHEME = re.compile(r"\Atel:\s*", re.IGNORECASE)  # RFC 3966, as copied from web pages and address books
FOREIGN = re.compile(r"[^\d\s()\[\]+./~\u00b7\u2010-\u2015\u2212-]+")
SECOND = re.compile(r"[\n\r]|(?:\d\D*){7}/\s*\d{1,3}\Z")  # a further line, or another ending, as in 1234567/68
DECIMAL = re.compile(r"\.0+\Z")  # of a program that took the number for one to calculate with
NUMERALS = ("No", "Nl")  # such as superscripts, which are no digits of a number
NORTH_AMERICA = 1  # country code; toll-free numbers take messages there
WITHOUT_SMS = ("premium_rate", "shared_cost", "toll_free", "uan", "voicemail")  # kinds, as the library names them
WHY_NOT = {
    phonenumbers.NumberParseException.INVALID_COUNTRY_CODE: Said("no country has this code"),
    phonenumbers.NumberParseException.TOO_LONG: Said("it is too long"),
}


def parse_e164(text: str, region: str = "") -> str:
    """Return the number in E.164 if the whole text is one number of a length that exists in its country.

    Drops invisible signs and a leading "tel:", and reads digits of every script. Raises ValueError with a sentence.
    """
    return _write_e164(_read_number(text, region))


def mobile_e164(text: str, region: str = "") -> str:
    """Return the number as e164 does; raise ValueError also for a kind of number that never gets messages."""
    number = _read_number(text, region)
    pattern = _pattern_without_messages(number.country_code)
    if pattern and pattern.fullmatch(phonenumbers.national_significant_number(number)):
        raise ValueError(Said(NO_SMS, number=_shown_number(text)))
    return _write_e164(number)


def region_of(number: str) -> str:
    """Return the main country with the code of a number in E.164, as ISO 3166 names it; "" for any other text."""
    try:
        return phonenumbers.region_code_for_country_code(phonenumbers.parse(number).country_code or 0)
    except phonenumbers.NumberParseException:
        return ""


def _write_e164(number: phonenumbers.PhoneNumber) -> str:
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


@cache
def _pattern_without_messages(country_code: int) -> re.Pattern[str] | None:
    """Return the pattern of a country's numbers that get no messages; the library's number_type takes long."""
    kinds = [kind for kind in WITHOUT_SMS if country_code != NORTH_AMERICA or kind != "toll_free"]
    metadata = phonenumbers.PhoneMetadata
    regions = [metadata.metadata_for_region(one) for one in phonenumbers.region_codes_for_country_code(country_code)]
    found = [one for one in (*regions, metadata.metadata_for_nongeo_region(country_code)) if one]
    descriptions = [getattr(one, kind) for one in found for kind in kinds]
    patterns = [one.national_number_pattern for one in descriptions if one and one.national_number_pattern]
    return re.compile("|".join(f"(?:{one})" for one in patterns)) if patterns else None


def _read_number(text: str, region: str) -> phonenumbers.PhoneNumber:
    shown = _shown_number(text)
    typed = SCHEME.sub("", given_address(_plain_digits(text)))
    if not SIGNS.fullmatch(typed) or SECOND.search(typed) or DECIMAL.search(typed):
        raise ValueError(Said("%(number)s is not a phone number: %(why)s", number=shown, why=_describe_oddity(typed)))
    try:
        number = phonenumbers.parse(" ".join(typed.replace("\u00b7", " ").split()), region or None)
    except phonenumbers.NumberParseException as error:
        raise ValueError(
            Said("%(number)s is not a phone number: %(why)s", number=shown, why=_hint_for_error(typed, region, error))
        ) from error
    _drop_old_mexican_prefix(number)
    if region and "+" not in typed:
        number = _add_country_code(number, typed)
    possible = phonenumbers.is_possible_number_with_reason(number) == phonenumbers.ValidationResult.IS_POSSIBLE
    if number.extension or not possible:
        is_there = region and "+" not in typed
        raise ValueError(Said(WRONG_THERE if is_there else WRONG, number=shown, region=region))
    return number


def _shown_number(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _plain_digits(text: str) -> str:
    """Return the text with the digits and signs of every script as ASCII ones; other numerals stay as they are."""
    if text.isascii():
        return text
    return "".join(one if unicodedata.category(one) in NUMERALS else unicodedata.normalize("NFKC", one) for one in text)


def _add_country_code(number: phonenumbers.PhoneNumber, typed: str) -> phonenumbers.PhoneNumber:
    """Return the mobile number that a + before the digits would make, if the number is none as it stands.

    Spreadsheets drop the + of a number. phonenumbers heeds a country code without one, but not where it also begins
    numbers of a town: 49 171 1234567 would be one in Leer.
    """
    code = str(number.country_code)
    if number.national_number < 10 ** len(code) or not str(number.national_number).startswith(code):
        return number
    if number.italian_leading_zero or _is_mobile(number) or re.match(r"\D*0", typed):
        return number
    try:
        other = phonenumbers.parse(f"+{number.national_number}")
    except phonenumbers.NumberParseException:
        return number
    return other if other.country_code == number.country_code and _is_mobile(other) else number


def _is_mobile(number: phonenumbers.PhoneNumber) -> bool:
    kind = phonenumbers.number_type(number)
    return kind in (phonenumbers.PhoneNumberType.MOBILE, phonenumbers.PhoneNumberType.FIXED_LINE_OR_MOBILE)


def _describe_oddity(typed: str) -> str:
    """Describe the part of the text that cannot belong to a number."""
    found = FOREIGN.search(typed)
    if found:
        word = found[0] if len(found[0]) <= 20 else found[0][:17] + "..."
        return Said("%(word)s is no part of a number; leave out everything but the number", word=repr(word))
    if not any(one.isdecimal() for one in typed):
        return Said("it has no digits")
    if DECIMAL.search(typed):
        return Said("it ends as a number with decimals; make the column a text in the program that wrote it")
    return Said("it is not one number; keep one and leave out the rest")


def _drop_old_mexican_prefix(number: phonenumbers.PhoneNumber) -> None:
    """Drop the 1 after Mexico's country code: mobile numbers had one until 2019, and address books keep it."""
    digits = str(number.national_number)
    if number.country_code == 52 and len(digits) == 11 and digits.startswith("1"):
        number.national_number = int(digits[1:])


def _hint_for_error(typed: str, region: str, error: phonenumbers.NumberParseException) -> str:
    if region or "+" in typed:
        return WHY_NOT.get(error.error_type, Said("it is too short"))
    return Said("it must start with + and the country code, or name the region whose numbers are written without them")


def known_region(region: str) -> None:
    """Raise ValidationError if no numbers are known for this region."""
    if region not in phonenumbers.SUPPORTED_REGIONS:
        raise ValidationError(
            Said("%(name)s is not a region: two capital letters of ISO 3166, like GB", name=repr(region))
        )

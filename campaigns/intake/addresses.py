"""Recipients' addresses in the one form in which they are stored and compared.

Each function returns that form, or raises ValueError that says in words what is wrong.
"""

import re
import unicodedata
from collections.abc import Callable

import phonenumbers
from email_validator import EmailNotValidError, validate_email

# Takes what is certainly an address, so that most never see the library; what it does not take, the library judges.
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]++"
_LABEL = r"(?![^.]{64})[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*+"
_RESERVED = r"(?i:arpa|invalid|local|localhost|onion|test)"
PLAIN_EMAIL = re.compile(
    rf"(?!.{{255}})(?=[^@]{{1,64}}@)({_ATOM}(?:\.{_ATOM})*+)@((?:{_LABEL}\.)++(?!{_RESERVED}\Z)[A-Za-z]{{2,63}})",
    re.ASCII,
)

Normal = Callable[[str], str]


def email(text: str) -> str:
    """RFC 5322 without comments and quotes, internationalised too, no DNS. Its domain in lower case, all in NFC."""
    plain = PLAIN_EMAIL.fullmatch(text)
    if plain:
        return f"{plain[1]}@{plain[2].lower()}"
    try:
        return validate_email(text, check_deliverability=False, strict=True).normalized
    except EmailNotValidError as error:
        raise ValueError(f"{_quoted(text)} is not an e-mail address: {error}") from error


def phone(text: str) -> str:
    """E.164 with its country code, of a length that the country has."""
    try:
        number = phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException as error:
        hint = "it must start with + and the country code" if not text.startswith("+") else str(error)
        raise ValueError(f"{_quoted(text)} is not a phone number: {hint}") from error
    possible = phonenumbers.is_possible_number_with_reason(number) == phonenumbers.ValidationResult.IS_POSSIBLE
    if number.extension or not possible:
        raise ValueError(f"{_quoted(text)} is not a phone number that can get a message: wrong length or an extension")
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def print_address(text: str) -> str:
    """Whatever the printer is to put on the envelope, or its key."""
    return unicodedata.normalize("NFC", text)


BY_CHANNEL: dict[str, Normal] = {"email": email, "sms": phone, "print": print_address}


def reader(channel: str) -> Normal:
    """The function that reads the addresses of vendors.models.Vendor.Channel; spaces around them do not count."""
    read = BY_CHANNEL[channel]

    def normal(text: str) -> str:
        text = text.strip()
        if not text:
            raise ValueError("there is no recipient")
        return read(text)

    return normal


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")

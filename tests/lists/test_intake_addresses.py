"""One recipient has one written form, however it is typed; and the fast check never disagrees with the library."""

import pytest
from email_validator import validate_email
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.lists.intake.checking import PLAIN_EMAIL, AddressReader, normal_email

atoms = st.from_regex(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.\-]{1,70}", fullmatch=True)
labels = st.from_regex(r"[A-Za-z0-9\-]{1,8}|[A-Za-z0-9\-]{60,65}", fullmatch=True)
endings = st.sampled_from(
    ["com", "co.uk", "test", "TEST", "local", "example", "c", "c1", "arpa", "invalid.com", "xn--p1ai"]
)
addresses = st.builds(lambda local, label, end: f"{local}@{label}.{end}", atoms, labels, endings)


@settings(max_examples=300)
@given(addresses | st.emails())
def test_what_the_fast_way_accepts_the_library_accepts_in_the_same_form(address: str) -> None:
    if PLAIN_EMAIL.fullmatch(address):
        assert normal_email(address) == validate_email(address, check_deliverability=False, strict=True).normalized


@pytest.mark.parametrize("address", ["ann@sandbox.example", "ann+tag@Example.COM", "o'brien@a-b.co.uk"])
def test_usual_addresses_take_the_fast_way(address: str) -> None:
    assert PLAIN_EMAIL.fullmatch(address)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("Ann@EXAMPLE.com", "Ann@example.com"),
        (" ann@example.com\t", "ann@example.com"),
        ("jose\u0301@example.com", "jos\u00e9@example.com"),
        ("ann@M\u00dcNCHEN.de", "ann@m\u00fcnchen.de"),
        ("ann@xn--mnchen-3ya.de", "ann@m\u00fcnchen.de"),
        ("\uff41\uff4e\uff4e\uff20\uff45\uff58\uff41\uff4d\uff50\uff4c\uff45.com", "ann@example.com"),
    ],
)
def test_an_address_is_stored_in_one_form(typed: str, stored: str) -> None:
    assert AddressReader("email")(typed) == stored


@pytest.mark.parametrize(
    "typed",
    [
        *("ann", "ann@", "@example.com", "ann@localhost", "ann@example.test", "a b@example.com", "a@b@example.com"),
        *("ann@example..com", ".ann@example.com", "ann@-example.com", "ann@example.com\r\nBcc: bob@example.com"),
        *("Ann <ann@example.com>", "ann@example.com,bob@example.com", "a" * 65 + "@example.com", "a\0@example.com"),
    ],
)
def test_what_is_no_address_is_said_so(typed: str) -> None:
    with pytest.raises(ValueError, match="is not an e-mail address"):
        AddressReader("email")(typed)


@pytest.mark.parametrize("typed", ["+44 7700 900123", "+44 (0)7700 900-123", "+447700900123"])
def test_a_phone_number_is_stored_as_e164(typed: str) -> None:
    assert AddressReader("sms")(typed) == "+447700900123"


@pytest.mark.parametrize("typed", ["07700 900123", "+44 7700", "+999 1234567", "ann", "+447700900123 ext 5"])
def test_what_gets_no_text_message_is_said_so(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a phone number"):
        AddressReader("sms")(typed)


def test_a_print_address_may_be_anything_but_nothing() -> None:
    assert AddressReader("print")(" 1 High Street\nNewtown ") == "1 High Street\nNewtown"


@pytest.mark.parametrize("channel", ["email", "sms", "print"])
def test_no_recipient_is_no_recipient(channel: str) -> None:
    with pytest.raises(ValueError, match="there is no recipient"):
        AddressReader(channel)("  ")

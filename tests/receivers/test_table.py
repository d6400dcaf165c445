"""The table of receiving domains, and the group of an address."""

import re
import tomllib

import pytest

from vendors.receivers import OTHERS, TABLE, known_groups, plain_domain, receiver_of

DOMAIN = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}")


def test_every_group_names_its_domains_its_servers_and_a_source() -> None:
    for group, keys in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        assert keys.keys() == {"domains", "mx", "source"}, group
        assert keys["domains"], group
        assert keys["source"].startswith("https://"), group
        assert 1 <= len(group) <= 40, group
        assert group != OTHERS


def test_a_domain_is_written_plainly_and_is_in_one_group() -> None:
    every = [domain for domains in known_groups().values() for domain in domains]
    assert not [one for one in every if not DOMAIN.fullmatch(one) or plain_domain(one) != one]
    assert sorted(every) == sorted(set(every))


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("ann@gmail.com", "gmail"),
        ("ann@googlemail.com", "gmail"),
        ("Ann@GMail.COM", "gmail"),
        ("ann@gmail.com.", "gmail"),
        ("ann@hotmail.de", "outlook"),
        ("ann@ymail.com", "yahoo"),
        ("ann@aol.com", "yahoo"),
        ("ann@yahoo.co.jp", "yahoo-japan"),
        ("ann@gmx.net", "gmx"),
        ("ann@web.de", "web.de"),
        ("ann@me.com", "icloud"),
        ("ann@t-online.de", "t-online"),
        ('"a@b"@gmail.com', "gmail"),
        ("ann@g\N{FULLWIDTH LATIN SMALL LETTER M}ail.com", "gmail"),
        ("ann@m\N{LATIN SMALL LETTER U WITH DIAERESIS}ller.example", OTHERS),
        ("ann@example.com", OTHERS),
        ("ann@notgmail.com", OTHERS),
        ("ann@mail.gmail.com", OTHERS),
        ("ann@" + "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 300, OTHERS),
        ("ann@" + "x" * 10_000, OTHERS),
        ("ann@a..\N{LATIN SMALL LETTER U WITH DIAERESIS}", OTHERS),
        ("+491701234567", OTHERS),
        ("1 Main Street\nTown", OTHERS),
        ("", OTHERS),
    ],
)
def test_the_group_of_an_address(address: str, group: str) -> None:
    assert receiver_of(address) == group

"""The receiving domains: which provider's mail servers accept the mail of an address.

A provider such as Gmail counts and slows a sender over all of its domains together, so its domains are one group. The
table is data (receivers.toml). No question is asked of DNS: an address is judged by its domain alone.
"""

import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

TABLE = Path(__file__).with_name("receivers.toml")
OTHERS = "*"
"""The group of all domains that are in no other group."""
DOMAIN_MAX = 253


def receiver_of(address: str) -> str:
    """Return the group of an e-mail address, such as "gmail"; OTHERS for all other texts and domains."""
    return group_of(domain_of(address))


def domain_of(address: str) -> str:
    """Return the domain of an e-mail address as it is written; "" or another text if it is none."""
    return address.rpartition("@")[2]


@lru_cache(maxsize=4096)
def waiting_part(domain: str) -> str:
    """Return what waits together with a domain: its group, or the domain alone if it is in none."""
    group = group_of(domain)
    return plain_domain(domain) if group == OTHERS else group


@lru_cache(maxsize=4096)  # a list has few domains that come often
def group_of(domain: str) -> str:
    """Return the group of a domain, in any case, in Unicode or as IDNA, with or without a dot at its end."""
    return groups_of_domains().get(plain_domain(domain), OTHERS)


def plain_domain(domain: str) -> str:
    """Return a domain in small letters and as IDNA; "" if it cannot be one."""
    bare = domain.strip().rstrip(".").lower()
    if len(bare) > DOMAIN_MAX:
        return ""
    if bare.isascii():
        return bare
    try:
        return bare.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return ""


@cache
def groups_of_domains() -> Mapping[str, str]:
    """Return the group of each domain in the table."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return MappingProxyType({domain: group for group, keys in table.items() for domain in keys["domains"]})


@cache
def known_groups() -> Mapping[str, tuple[str, ...]]:
    """Return the domains of each group in the table, in its order."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return MappingProxyType({group: tuple(keys["domains"]) for group, keys in table.items()})

"""The receiving domains: which provider's mail servers accept the mail of an address.

A provider such as Gmail counts and slows a sender over all of its domains together, so its domains are one group. The
table is data (receivers.toml). Operators' own rows win over it (vendors/receiver_domains.py); readers of the rows hand
them over by `replace_own_domains`. No question is asked of DNS: an address is judged by its domain alone.
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
KEPT = 4096  # a list has few domains that come often


class GroupedDomains:
    """The table with operators' rows over it, and the answers to the latest questions."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self.own = MappingProxyType(dict(own))
        self.groups_of = MappingProxyType({**_table_domains(), **own})
        found: dict[str, list[str]] = {group: [] for group in (*table_groups(), *own.values()) if group != OTHERS}
        for domain, group in self.groups_of.items():
            if group != OTHERS:
                found[group].append(domain)
        self.groups = MappingProxyType({group: tuple(domains) for group, domains in found.items()})
        self.group_of = lru_cache(maxsize=KEPT)(self._group_of)
        self.waiting_part = lru_cache(maxsize=KEPT)(self._waiting_part)

    def _group_of(self, domain: str) -> str:
        return self.groups_of.get(plain_domain(domain), OTHERS)

    def _waiting_part(self, domain: str) -> str:
        group = self.group_of(domain)
        return plain_domain(domain) if group == OTHERS else group


def receiver_of(address: str) -> str:
    """Return the group of an e-mail address, such as "gmail"; OTHERS for all other texts and domains."""
    return group_of(domain_of(address))


def domain_of(address: str) -> str:
    """Return the domain of an e-mail address as it is written; "" or another text if it is none."""
    return address.rpartition("@")[2]


def waiting_part(domain: str) -> str:
    """Return what waits together with a domain: its group, or the domain alone if it is in none."""
    return _known.waiting_part(domain)


def group_of(domain: str) -> str:
    """Return the group of a domain, in any case, in Unicode or as IDNA, with or without a dot at its end."""
    return _known.group_of(domain)


def groups_of_domains() -> Mapping[str, str]:
    """Return the group of each known domain."""
    return _known.groups_of


def known_groups() -> Mapping[str, tuple[str, ...]]:
    """Return the domains of each group, those of the table first."""
    return _known.groups


def own_domains() -> Mapping[str, str]:
    """Return the groups that operators gave to domains, as this process knows them."""
    return _known.own


def replace_own_domains(own: Mapping[str, str]) -> None:
    """Use these rows of operators from now on. Equal ones change nothing, so their answers stay kept."""
    global _known
    if dict(own) != _known.own:
        _known = GroupedDomains(own)


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
def table_groups() -> Mapping[str, tuple[str, ...]]:
    """Return the domains of each group in the table, in its order."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return MappingProxyType({group: tuple(keys["domains"]) for group, keys in table.items()})


def table_group(domain: str) -> str:
    """Return the group of a plain domain by the table alone."""
    return _table_domains().get(domain, OTHERS)


@cache
def _table_domains() -> Mapping[str, str]:
    return MappingProxyType({domain: group for group, domains in table_groups().items() for domain in domains})


_known = GroupedDomains({})

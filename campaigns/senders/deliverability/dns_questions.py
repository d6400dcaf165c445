"""DNS queries with a time limit, which tell an empty answer from a missing one.

The servers are those of the setting DNS_SERVERS, else those of this machine.
"""

import ipaddress
import time
from dataclasses import dataclass, field

import dns.exception
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver
from django.conf import settings

from vendors.said import Said, gettext_noop

EACH = 5.0  # seconds for a query, with its repeats
ALL = 30.0  # for all queries of one object
TOO_LONG = gettext_noop("%(kind)s of %(domain)s: not asked any more, the DNS took longer than %(seconds)s s")
NOT_IN_TIME = gettext_noop("%(kind)s of %(domain)s: the DNS did not answer in time; ask again")
COULD_NOT_TELL = gettext_noop("%(kind)s of %(domain)s: the DNS could not tell (SERVFAIL or the like); ask again")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class NoDnsAnswer(Exception):
    """No server answered the query. The text names the query and the reason."""


@dataclass(frozen=True, slots=True)
class DnsAnswer:
    """An answer. values: of the records; TXT as whole texts, MX as "10 mail.example.com". exists: the name exists."""

    name: str
    values: tuple[str, ...] = ()
    exists: bool = True

    def nothing_sentence(self, kind: str) -> str:
        """Return a sentence for an answer without values."""
        none = gettext_noop("%(domain)s has no %(kind)s record")
        return Said(
            none if self.exists else gettext_noop("%(domain)s does not exist in the DNS"), domain=self.name, kind=kind
        )


@dataclass
class DnsQuestions:
    """Sends queries and caches the answers. Methods raise NoDnsAnswer; for an impossible name they find nothing."""

    _known: dict[tuple[str, str], DnsAnswer] = field(default_factory=dict)
    _end: float = 0.0

    def txt_records(self, name: str) -> DnsAnswer:
        return self._ask_cached(name, "TXT")

    def mx_records(self, name: str) -> DnsAnswer:
        return self._ask_cached(name, "MX")

    def host_addresses(self, name: str) -> list[IpAddress]:
        """Return the IPv4 and IPv6 addresses of a name."""
        found = [*self._ask_cached(name, "A").values, *self._ask_cached(name, "AAAA").values]
        return [ipaddress.ip_address(one) for one in found]

    def _ask_cached(self, name: str, kind: str) -> DnsAnswer:
        name = name.rstrip(".").lower()
        if (name, kind) not in self._known:
            self._known[name, kind] = self._ask_resolver(name, kind)
        return self._known[name, kind]

    def _ask_resolver(self, name: str, kind: str) -> DnsAnswer:
        now = time.monotonic()
        self._end = self._end or now + ALL
        if now >= self._end:
            raise NoDnsAnswer(Said(TOO_LONG, kind=kind, domain=name, seconds=ALL))
        try:
            wanted = dns.name.from_text(f"{name}.")
            found = _make_resolver().resolve(wanted, kind, lifetime=min(EACH, self._end - now), search=False)
        except dns.resolver.NXDOMAIN:
            return DnsAnswer(name, exists=False)
        except dns.resolver.NoAnswer:
            return DnsAnswer(name)
        except dns.resolver.LifetimeTimeout:
            raise NoDnsAnswer(Said(NOT_IN_TIME, kind=kind, domain=name)) from None
        except dns.resolver.NoNameservers:
            raise NoDnsAnswer(Said(COULD_NOT_TELL, kind=kind, domain=name)) from None
        except dns.resolver.NoResolverConfiguration:
            raise NoDnsAnswer(Said(gettext_noop("this machine names no DNS server: set DNS_SERVERS"))) from None
        except (dns.exception.DNSException, UnicodeError):  # not a valid name: too long, or with an empty label
            return DnsAnswer(name, exists=False)
        return DnsAnswer(name, tuple(_record_text(one) for one in found))


def _make_resolver() -> dns.resolver.Resolver:
    if not settings.DNS_SERVERS:
        return dns.resolver.Resolver()
    found = dns.resolver.Resolver(configure=False)
    found.nameservers = [dns.nameserver.Do53Nameserver(*one) for one in settings.DNS_SERVERS]
    return found


def _record_text(record: object) -> str:
    """Return a record as text; the parts of a TXT are joined (RFC 7208, 3.3; RFC 6376, 3.6.2.2)."""
    parts: tuple[bytes, ...] | None = getattr(record, "strings", None)
    return b"".join(parts).decode("utf-8", "replace") if parts is not None else str(record)

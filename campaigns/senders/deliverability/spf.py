"""Checks SPF (RFC 7208): which hosts may send mails with a return path of this domain.

The whole record is read with all its includes, because a receiver may need all of it.
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from campaigns.senders.deliverability.dns_questions import DnsQuestions, IpAddress
from campaigns.senders.deliverability.findings import (
    MISSING,
    NOT_KNOWN,
    OK,
    WRONG,
    DnsEntry,
    Finding,
    faults_of_domain,
    join_with_and,
)
from vendors.said import Said, gettext_noop

LOOK_UPS = 10  # allowed for a record (4.6.4); receivers treat one that needs more as broken
VOID = 2  # of these without a record
EXCHANGERS = 10  # of an mx mechanism
FAULTS = 10  # reported
LONGEST = 80  # characters shown of a word
READ = 40  # look-ups after which reading stops
MALFORMED = gettext_noop("%(domain)s is not complete or not well-formed")
SEVERAL = gettext_noop("%(word)s of %(domain)s, which has several records of SPF")
NONE = gettext_noop("%(word)s of %(domain)s, which has no record of SPF")

_RECORD = re.compile(r"v=spf1(?: +|$)", re.IGNORECASE)
_MECHANISM = re.compile(r"([+?~-]?)(all|include|a|mx|ptr|ip4|ip6|exists)(?:(?=/)|:|$)(\S*)", re.IGNORECASE)
_MODIFIER = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)=(\S*)")
_HOST = re.compile(r"([^/]*)(?:/([0-9]{1,3}))?(?://([0-9]{1,3}))?")
_LAST = re.compile(r" *(?:[+?~-]?all|redirect=\S*)$", re.IGNORECASE)

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class SpfTerm:
    """The networks that a mechanism allows or forbids. networks: None if they depend on the mail (exists, macros).

    nested: the terms of an include, which matches the addresses they allow. A redirect's terms are part of the record.
    """

    qualifier: str
    networks: tuple[IpNetwork, ...] | None = ()
    nested: "Sequence[SpfTerm] | None" = None


EVERYTHING: tuple[IpNetwork, ...] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))


@dataclass
class SpfReader:
    """Reads a record and those it leads to.

    faults: sentences; any of them lets receivers treat the record as broken.
    """

    dns: DnsQuestions
    look_ups: int = 0
    void: int = 0
    faults: list[str] = field(default_factory=list)
    included: set[str] = field(default_factory=set)
    reading: set[str] = field(default_factory=set)

    def read_terms(self, domain: str, record: str) -> list[SpfTerm]:
        """Return the terms of this record of the domain. Raises NoDnsAnswer."""
        self.reading.add(domain.lower())
        try:
            return self._terms_of_record(domain, record)
        finally:
            self.reading.discard(domain.lower())

    def _terms_of_record(self, domain: str, record: str) -> list[SpfTerm]:
        found: list[SpfTerm] = []
        redirect = ""
        for word in _RECORD.sub("", record).split():
            if mechanism := _MECHANISM.fullmatch(word):
                term = self._term_of_mechanism(domain, mechanism[1] or "+", mechanism[2].lower(), mechanism[3])
                if term is None:
                    self._note_fault(MALFORMED, domain=f"{domain}: {word[:LONGEST]!r}")
                    continue
                found.append(term)
                if term.networks is EVERYTHING:
                    return found  # the rest is ignored
            elif modifier := _MODIFIER.fullmatch(word):
                redirect = modifier[2] if modifier[1].lower() == "redirect" else redirect
            else:
                self._note_fault(gettext_noop("%(domain)s is no term of SPF"), domain=f"{domain}: {word[:LONGEST]!r}")
        return [*found, *(self._included_terms(redirect, "redirect") or ())] if redirect else found

    def _term_of_mechanism(self, domain: str, qualifier: str, name: str, value: str) -> SpfTerm | None:
        """Return a mechanism's term, or None if it is malformed."""
        match name:
            case "all":
                return None if value else SpfTerm(qualifier, EVERYTHING)
            case "ip4" | "ip6":
                network = _parse_network(value, int(name[2]))
                return SpfTerm(qualifier, (network,)) if network else None
            case "include":
                nested = self._included_terms(value, "include") if value else None
                return SpfTerm(qualifier, None if nested is None else (), nested) if value else None
        parts = _HOST.fullmatch(value)
        if parts is None or (name == "exists" and not value):
            return None
        host = parts[1] or domain
        if not self._may_look_up() or name in ("exists", "ptr") or "%" in host:
            return SpfTerm(qualifier, None)
        return SpfTerm(qualifier, tuple(_network_around(one, parts[2], parts[3]) for one in self._host_ips(name, host)))

    def _note_fault(self, form: str, **values: str) -> None:
        if len(self.faults) < FAULTS:
            self.faults.append(Said(form, **values))

    def _may_look_up(self) -> bool:
        self.look_ups += 1
        return self.look_ups <= READ

    def _included_terms(self, domain: str, word: str) -> list[SpfTerm] | None:
        """Return the terms of another domain's record, or None if they cannot be known."""
        if not self._may_look_up() or "%" in domain:
            return None
        self.included.add(domain.lower())
        if domain.lower() in self.reading:
            back = gettext_noop("%(word)s of %(domain)s, whose record leads back to itself")
            self._note_fault(back, word=word, domain=domain)
            return None
        records = records_of(self.dns, domain)
        if len(records) == 1:
            return self.read_terms(domain, records[0])
        self.void += not self.dns.txt_records(domain).values
        self._note_fault(SEVERAL if records else NONE, word=word, domain=domain)
        return None

    def _host_ips(self, name: str, host: str) -> Iterator[IpAddress]:
        if name == "a":
            hosts = [host]
        else:
            hosts = [value.split()[-1] for value in self.dns.mx_records(host).values]
            self.void += not hosts
            if len(hosts) > EXCHANGERS:
                many = gettext_noop("mx of %(domain)s, which has more than %(count)s MX records")
                self._note_fault(many, domain=host, count=str(EXCHANGERS))
        for one in hosts[:EXCHANGERS]:
            found = self.dns.host_addresses(one)
            self.void += not found and name == "a"
            yield from found


def _parse_network(value: str, version: int) -> IpNetwork | None:
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        return None
    return network if network.version == version else None


def _network_around(address: IpAddress, four: str | None, six: str | None) -> IpNetwork:
    """Return the address's network with this number of bits."""
    bits = four if address.version == 4 else six
    most = address.max_prefixlen
    return ipaddress.ip_network(f"{address}/{min(int(bits or most), most)}", strict=False)


def records_of(dns: DnsQuestions, domain: str) -> list[str]:
    return [text for text in dns.txt_records(domain).values if _RECORD.match(text)]


def allows_address(terms: Sequence[SpfTerm], address: IpAddress) -> bool | None:
    """Return whether a mail from this address passes; None if that cannot be known."""
    unsure = False
    for term in terms:
        inner = False if term.nested is None else allows_address(term.nested, address)
        if inner is None or term.networks is None:
            unsure = True
        elif inner or any(address in one for one in term.networks if one.version == address.version):
            return True if term.qualifier == "+" else (None if unsure else False)
    return None if unsure else False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The addresses a relay sends from. mechanism: allows them. typed: the user named them.

    Otherwise they are the addresses at which the relay accepts mail, which are often different ones.
    """

    name: str
    mechanism: str
    addresses: tuple[IpAddress, ...]
    typed: bool


def check_spf(dns: DnsQuestions, domain: str, outgoing: Sequence[Outgoing]) -> Iterator[Finding]:
    """Check the record of the return path's domain. Raises NoDnsAnswer."""
    records = records_of(dns, domain)
    if not records:
        none = gettext_noop("%(domain)s, the domain of the return path, has no TXT record that begins with v=spf1")
        yield Finding("SPF", MISSING, Said(none, domain=domain), _spf_entry(domain, "v=spf1 ~all", outgoing))
        return
    if len(records) > 1:
        many = gettext_noop(
            "%(domain)s has %(count)s records of SPF, so none counts: leave one, with all that they allow"
        )
        yield Finding("SPF", WRONG, Said(many, domain=domain, count=str(len(records))))
        return
    reader = SpfReader(dns)
    terms = reader.read_terms(domain, records[0])
    if faults := [*reader.faults, *_excess_faults(reader, terms)]:
        yield Finding("SPF", WRONG, faults_of_domain(domain, faults))
        return
    one = gettext_noop("%(domain)s has one record, which needs %(count)s of %(most)s look-ups")
    yield Finding("SPF", OK, Said(one, domain=domain, count=str(reader.look_ups), most=str(LOOK_UPS)))
    yield _check_relay(domain, records[0], reader.included, terms, outgoing)


def _excess_faults(reader: SpfReader, terms: Sequence[SpfTerm]) -> Iterator[str]:
    if any(term.networks is EVERYTHING and term.qualifier == "+" for term in terms):
        yield Said(gettext_noop("it allows everybody (+all)"))
    if reader.look_ups > LOOK_UPS:
        more = gettext_noop("it needs more than %(count)s look-ups, and receivers make %(most)s: include less")
        exact = gettext_noop("it needs %(count)s look-ups, and receivers make %(most)s: include less")
        form = more if reader.look_ups > READ else exact
        yield Said(form, count=str(min(reader.look_ups, READ)), most=str(LOOK_UPS))
    if reader.void > VOID:
        void = gettext_noop("%(count)s of its look-ups find nothing, and receivers allow %(most)s")
        yield Said(void, count=str(reader.void), most=str(VOID))


def _check_relay(
    domain: str, record: str, included: set[str], terms: Sequence[SpfTerm], outgoing: Sequence[Outgoing]
) -> Finding:
    """Check that the record allows the relay's addresses."""

    def does_pass(one: Outgoing) -> bool:
        if one.mechanism.startswith("include:"):
            return one.name in included
        return bool(one.addresses) and all(allows_address(terms, address) for address in one.addresses)

    typed = [one for one in outgoing if one.typed]
    refused = [one for one in typed if not does_pass(one)]
    if refused:
        form = gettext_noop("%(domain)s does not allow %(hosts)s, from where the relay sends")
        why = Said(form, domain=domain, hosts=join_with_and(one.name for one in refused))
        return Finding(AND_RELAY, WRONG, why, _spf_entry(domain, record, refused))
    if typed or (outgoing and all(map(does_pass, outgoing))):
        names = [one.name for one in typed or outgoing]
        allowed = Said(gettext_noop("%(domain)s allows %(hosts)s"), domain=domain, hosts=join_with_and(names))
        return Finding(AND_RELAY, OK, allowed)
    unknown = gettext_noop(
        "from which addresses the relay sends only its operator knows: ask, and say --sends-from ADDRESS_OR_NAME"
    )
    return Finding(AND_RELAY, NOT_KNOWN, Said(unknown))


AND_RELAY = Said(gettext_noop("SPF and relay"))


def _spf_entry(domain: str, record: str, missing: Sequence[Outgoing]) -> DnsEntry:
    """Return the record with the missing mechanisms added before its last word."""
    last = _LAST.search(record)
    head = record[: last.start()] if last else record
    added = [one.mechanism for one in missing] or ["include:NAME_THAT_THE_RELAYS_OPERATOR_TELLS"]
    return DnsEntry(domain, "TXT", " ".join([head, *added]) + (last[0] if last else ""))

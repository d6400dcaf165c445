"""Checks DMARC (RFC 7489): how receivers treat mails forged in our name, and whether ours pass.

A mail passes with a valid signature, or a return path that SPF allows, whose domain is aligned with From's: the same
domain or, with relaxed alignment, one of the same organisation. The organisation is found by the DMARC records of the
parent domains, as in the next version of DMARC, without a public suffix list.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaigns.senders.deliverability.dns_questions import DnsQuestions
from campaigns.senders.deliverability.findings import (
    MISSING,
    OK,
    WRONG,
    DnsEntry,
    Finding,
    faults_of_domain,
    join_with_and,
    parse_tags,
)
from vendors.said import Said, gettext_noop

POLICIES = ("none", "quarantine", "reject")
LEVELS = 8  # parent domains to query


@dataclass(frozen=True, slots=True)
class DmarcRecord:
    domain: str
    tags: dict[str, str]

    def is_strict(self, tag: str) -> bool:
        """Return whether adkim or aspf demands the same domain."""
        return self.tags.get(tag, "r").lower() == "s"


def check_dmarc(dns: DnsQuestions, domain: str, signers: Sequence[str], return_path: str) -> Iterator[Finding]:
    """Check DMARC. domain: From's. signers: domains of the signatures. Raises NoDnsAnswer."""
    try:
        found = _find_records(dns, domain)
    except ValueError as error:
        yield Finding("DMARC", WRONG, str(error))
        return
    if not found:
        form = gettext_noop(
            "neither %(domain)s nor a domain above it has a record; Gmail and Yahoo want one of whoever sends in bulk"
        )
        yield Finding(
            "DMARC", MISSING, Said(form, domain=domain), DnsEntry(f"_dmarc.{domain}", "TXT", "v=DMARC1; p=none")
        )
        return
    record = found[0]
    policy = record.tags.get("p", "").lower()
    if record.domain != domain:
        policy = record.tags.get("sp", policy).lower()
    if policy not in POLICIES:
        entry = DnsEntry(f"_dmarc.{record.domain}", "TXT", "v=DMARC1; p=none")
        form = gettext_noop("%(domain)s: its policy (p=) must be none, quarantine or reject")
        yield Finding("DMARC", WRONG, Said(form, domain=f"_dmarc.{record.domain}"), entry)
        return
    own = gettext_noop("mails that fail: %(policy)s")
    above = gettext_noop("mails that fail: %(policy)s, from the record of %(domain)s")
    form = own if record.domain == domain else above
    yield Finding("DMARC", OK, Said(form, policy=policy, domain=record.domain))
    yield _check_alignment(dns, record, domain, signers, return_path)


def _check_alignment(
    dns: DnsQuestions, record: DmarcRecord, domain: str, signers: Sequence[str], return_path: str
) -> Finding:
    good: list[str] = []
    bad: list[str] = []
    for about, other, strict in [
        *((gettext_noop("the DKIM's %(domain)s"), one, record.is_strict("adkim")) for one in signers),
        (gettext_noop("the return path's %(domain)s"), return_path, record.is_strict("aspf")),
    ]:
        aligned = other == domain or (not strict and _one_organisation(dns, other, domain))
        shown = Said(about, domain=other + (" (strict)" if strict and not aligned else ""))
        (good if aligned else bad).append(shown)
    subject = Said(gettext_noop("alignment"))
    if good:
        whole = gettext_noop("aligned with From's %(domain)s: %(good)s")
        partly = gettext_noop("aligned with From's %(domain)s: %(good)s; not %(bad)s")
        values = {"good": join_with_and(good), "bad": join_with_and(bad) if bad else ""}
        return Finding(subject, OK, Said(partly if bad else whole, domain=domain, **values))
    form = gettext_noop(
        "not aligned with From's %(domain)s: %(bad)s; give it a key (identity dkim) or a return path "
        "(identity set --return-path) of From's domain"
    )
    return Finding(subject, WRONG, Said(form, domain=domain, bad=join_with_and(bad)))


def _one_organisation(dns: DnsQuestions, one: str, other: str) -> bool:
    if one.endswith(f".{other}") or other.endswith(f".{one}"):  # a suffix has neither mailboxes nor keys
        return True
    return _organisational_domain(dns, one) == _organisational_domain(dns, other)


def _organisational_domain(dns: DnsQuestions, domain: str) -> str:
    """Return the organisation's domain: the highest one with a DMARC record, else the domain itself."""
    try:
        found = _find_records(dns, domain)
    except ValueError:
        return domain
    for record in found:
        match record.tags.get("psd", "u").lower():
            case "n":
                return record.domain
            case "y" if record.domain != domain:  # a public suffix, with the organisations below it
                labels = domain.split(".")
                return ".".join(labels[-record.domain.count(".") - 2 :])
    return found[-1].domain if found else domain


def _find_records(dns: DnsQuestions, domain: str) -> list[DmarcRecord]:
    """Return the records of the domain and its parents, upwards. Raises ValueError if one is broken."""
    labels = domain.split(".")
    names = [".".join(labels[at:]) for at in range(len(labels))]
    return [found for name in [names[0], *names[1:][-LEVELS:]] if (found := _find_record(dns, name))]


def _find_record(dns: DnsQuestions, domain: str) -> DmarcRecord | None:
    texts = [
        text for text in dns.txt_records(f"_dmarc.{domain}").values if text.replace(" ", "").startswith("v=DMARC1")
    ]
    if len(texts) > 1:
        many = gettext_noop("%(domain)s has %(count)s records, so none counts: leave one")
        raise ValueError(Said(many, domain=f"_dmarc.{domain}", count=str(len(texts))))
    try:
        return DmarcRecord(domain, parse_tags(texts[0])) if texts else None
    except ValueError as why:
        raise ValueError(faults_of_domain(f"_dmarc.{domain}", [str(why)])) from None

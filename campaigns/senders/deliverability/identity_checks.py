"""Checks the DNS and the settings that make receivers trust the mails of a sender identity."""

import ipaddress
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from campaigns.models import Identity
from campaigns.senders.deliverability import arrivals, dkim_records, dmarc, spf
from campaigns.senders.deliverability.dns_questions import DnsQuestions, NoDnsAnswer
from campaigns.senders.deliverability.findings import NO_ANSWER, Finding
from campaigns.senders.deliverability.spf import Outgoing
from vendors.adapters import mime
from vendors.adapters.options import is_this_machine
from vendors.models import Vendor
from vendors.said import Said

SELECTOR = "._domainkey."


def check_identity(identity: Identity, sends_from: Sequence[str] = (), selectors: Sequence[str] = ()) -> list[Finding]:
    """Run the checks. sends_from: the relay's addresses, networks or names. selectors: of the relay's DKIM records.

    A missing DNS answer is also a finding. Takes no longer than DnsQuestions allows.
    """
    dns = DnsQuestions()
    known = mime.parse_origin(identity.origin)
    domain, return_path = known.domain.lower(), _domain_of_address(known.return_path)
    records = [one if SELECTOR in one else f"{one}{SELECTOR}{domain}" for one in map(str.lower, selectors)]
    named = f"{shlex.quote(identity.sponsor.name)} {identity.name}"
    make = f"manage.py identity dkim {named} --selector mailhub1"
    verp = f"manage.py identity set {named} --verp"
    signers = [known.dkim.domain.lower()] if known.dkim else []
    signers += [record.partition(SELECTOR)[2] for record in records]
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("SPF", lambda: spf.check_spf(dns, return_path, list(_outgoing_senders(dns, identity, sends_from)))),
        ("DKIM", lambda: dkim_records.check_dkim(dns, known.dkim, records, make)),
        ("DMARC", lambda: dmarc.check_dmarc(dns, domain, signers, return_path)),
        (Said("unsubscribe"), lambda: [arrivals.check_unsubscribing(dns)]),
        (arrivals.BOUNCES, lambda: [arrivals.check_bounces(known.return_path, identity.verp, verp)]),
    ]
    for one, what in _arriving_mail(identity, domain, return_path).items():
        checks.append((arrivals.mx_title(what), lambda one=one, what=what: [arrivals.check_arrivals(dns, one, what)]))  # type: ignore[misc]
    return [finding for about, verb in checks for finding in _run_or_no_answer(about, verb)]


def _run_or_no_answer(about: str, verb: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    try:
        yield from verb()
    except NoDnsAnswer as why:
        yield Finding(about, NO_ANSWER, str(why))


def _arriving_mail(identity: Identity, domain: str, return_path: str) -> dict[str, str]:
    """Return the mail that arrives at each domain."""
    answers = _domain_of_address(mime.parse_sender(identity.reply_to).address) if identity.reply_to else domain
    if answers == return_path:
        return {answers: arrivals.BOTH}
    return {answers: arrivals.ANSWERS, return_path: arrivals.BOUNCES}


def _domain_of_address(address: str) -> str:
    return address.rpartition("@")[2].lower()


def _outgoing_senders(dns: DnsQuestions, identity: Identity, sends_from: Sequence[str]) -> Iterator[Outgoing]:
    """Yield the senders given by the user, else the relays that the sponsor may use."""
    for text in sends_from:
        yield _typed_sender(dns, text.lower())
    if sends_from:
        return
    entitled = Vendor.objects.filter(channel=Vendor.Channel.EMAIL, entitlements__sponsor=identity.sponsor)
    for host in sorted(
        {str(one["host"]).lower() for one in entitled.values_list("settings", flat=True) if "host" in one}
    ):
        if is_this_machine(host):
            continue
        try:
            network = ipaddress.ip_address(host)
            yield Outgoing(host, f"ip{network.version}:{host}", (network,), False)
        except ValueError:
            yield Outgoing(host, f"a:{host}", tuple(dns.host_addresses(host)), False)


def _typed_sender(dns: DnsQuestions, text: str) -> Outgoing:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        if spf.records_of(dns, text):
            return Outgoing(text, f"include:{text}", (), True)
        return Outgoing(text, f"a:{text}", tuple(dns.host_addresses(text)), True)
    return Outgoing(text, f"ip{network.version}:{text}", (network[0], network[-1]), True)

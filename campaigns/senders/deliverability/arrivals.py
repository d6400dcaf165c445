"""Checks that replies and bounces reach a domain's mail servers, and unsubscribe clicks reach us.

Only the DNS is asked. It shows the servers, but not if they accept the mail.
"""

import ipaddress
from urllib.parse import urlsplit

from django.conf import settings

from campaigns.senders.deliverability.dns_questions import DnsQuestions, IpAddress
from campaigns.senders.deliverability.findings import MISSING, NOT_KNOWN, OK, WRONG, DnsEntry, Finding, join_with_and
from vendors.said import Said, gettext_noop

HOST = "HOST_THAT_TAKES_ITS_MAIL."
INSIDE = [
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")
]


def check_arrivals(dns: DnsQuestions, domain: str, what: str) -> Finding:
    """Check a domain's MX records. what: the mail that arrives there, such as "answers". Raises NoDnsAnswer."""
    about = mx_title(what)
    enter = DnsEntry(domain, "MX", f"10 {HOST}")
    answer = dns.mx_records(domain)
    if not answer.values:
        if is_reached(dns, domain):
            form = gettext_noop("%(mails)s go to the address of %(domain)s, since it has no MX record")
            return Finding(about, OK, Said(form, mails=what, domain=domain))
        none = Said(gettext_noop("%(why)s, and no address"), why=answer.nothing_sentence("MX"))
        return Finding(about, MISSING, Said(NOWHERE, mails=what, why=none), enter)
    ranked = sorted(answer.values, key=lambda value: int(value.split()[0]))
    hosts = [value.split()[-1].rstrip(".") for value in ranked]
    if hosts == [""]:  # RFC 7505
        none = Said(gettext_noop("%(domain)s says that it takes no mail (MX 0 .)"), domain=domain)
        return Finding(about, WRONG, Said(NOWHERE, mails=what, why=none), enter)
    if typed := [host for host in hosts if _is_address(host)]:
        form = gettext_noop("an MX record must name a host, but %(hosts)s is an address: servers do not send to it")
        return Finding(about, WRONG, Said(form, hosts=join_with_and(typed)), enter)
    dead = [host for host in hosts if not is_reached(dns, host)]
    if len(dead) == len(hosts):
        return Finding(about, WRONG, Said(NOWHERE, mails=what, why=_no_address(dead)), enter)
    good = join_with_and(host for host in hosts if host not in dead)
    if not dead:
        return Finding(about, OK, Said(gettext_noop("%(mails)s go to %(hosts)s"), mails=what, hosts=good))
    form = gettext_noop("%(mails)s go to %(hosts)s; but %(why)s")
    return Finding(about, OK, Said(form, mails=what, hosts=good, why=_no_address(dead)))


NOWHERE = gettext_noop("%(mails)s arrive nowhere: %(why)s")


def _no_address(hosts: list[str]) -> Said:
    one = gettext_noop("%(hosts)s has no address that is reached from outside")
    several = gettext_noop("%(hosts)s have no address that is reached from outside")
    return Said(one if len(hosts) == 1 else several, hosts=join_with_and(hosts))


def check_unsubscribing(dns: DnsQuestions) -> Finding:
    """Check that mails have an unsubscribe link that works. Raises NoDnsAnswer."""
    about, url = Said(gettext_noop("unsubscribe")), settings.PUBLIC_URL
    if not url:
        none = gettext_noop(
            "PUBLIC_URL is not set, so mails have no link; Gmail and Yahoo want one of whoever sends in bulk"
        )
        return Finding(about, MISSING, Said(none))
    host = urlsplit(url).hostname or ""
    if not url.startswith("https:"):
        form = gettext_noop("PUBLIC_URL is %(url)s: recipients cannot reach it, and one click needs https")
        return Finding(about, WRONG, Said(form, url=url))
    if not (_is_address(host) or is_reached(dns, host)):
        why = Said(gettext_noop("%(why)s, so no link of a mail works"), why=_no_address([host]))
        return Finding(about, MISSING, why, DnsEntry(host, "A", "ADDRESS_OF_THIS_INSTALLATION"))
    return Finding(about, OK, Said(gettext_noop("links lead to %(url)s"), url=url))


def check_bounces(return_path: str, verp: bool, command: str) -> Finding:
    """Check that bounces reach mailhub. command: directs them here."""
    about = Said(gettext_noop("bounces"))
    if not verp:
        form = gettext_noop("they go to %(address)s, and mailhub learns nothing of them: %(command)s")
        return Finding(about, NOT_KNOWN, Said(form, address=return_path, command=command))
    doors = [name for name in ("BOUNCE_RECEIVER", "BOUNCE_MAILBOX") if getattr(settings, name)]
    if not doors:
        none = gettext_noop(
            "they come back to mailhub, but it takes no mail: set BOUNCE_RECEIVER or BOUNCE_MAILBOX for all processes"
        )
        return Finding(about, WRONG, Said(none))
    return Finding(about, OK, Said(gettext_noop("they come back to mailhub, by %(hosts)s"), hosts=join_with_and(doors)))


ANSWERS, BOUNCES = Said(gettext_noop("answers")), Said(gettext_noop("bounces"))
BOTH = Said(gettext_noop("answers and bounces"))
ABOUT: dict[str, Said] = {
    ANSWERS: Said(gettext_noop("MX for answers")),
    BOUNCES: Said(gettext_noop("MX for bounces")),
    BOTH: Said("MX"),
}


def mx_title(what: str) -> str:
    return ABOUT[what]


def is_reached(dns: DnsQuestions, host: str) -> bool:
    """Return whether the host has an address outside private networks. Raises NoDnsAnswer."""
    return any(not _is_inside(address) for address in dns.host_addresses(host))


def _is_inside(address: IpAddress) -> bool:
    if address.is_loopback or address.is_link_local or address.is_unspecified:
        return True
    return any(address in network for network in INSIDE if network.version == address.version)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

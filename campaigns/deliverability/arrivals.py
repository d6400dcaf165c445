"""Checks that replies and bounces reach a domain's mail servers, and unsubscribe clicks reach us.

Only the DNS is asked. It shows the servers, but not if they accept the mail.
"""

import ipaddress
from urllib.parse import urlsplit

from django.conf import settings

from campaigns.deliverability.dns_questions import DnsQuestions, IpAddress
from campaigns.deliverability.findings import MISSING, NOT_KNOWN, OK, WRONG, DnsEntry, Finding, listed

HOST = "HOST_THAT_TAKES_ITS_MAIL."
INSIDE = [
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")
]


def check(dns: DnsQuestions, domain: str, what: str) -> Finding:
    """Check a domain's MX records. what: the mail that arrives there, such as "answers". Raises NoDnsAnswer."""
    about = about_mx(what)
    enter = DnsEntry(domain, "MX", f"10 {HOST}")
    answer = dns.exchangers(domain)
    if not answer.values:
        if reached(dns, domain):
            return Finding(about, OK, f"{what} go to the address of {domain}, since it has no MX record")
        return Finding(about, MISSING, f"{what} arrive nowhere: {answer.nothing('MX')}, and no address", enter)
    ranked = sorted(answer.values, key=lambda value: int(value.split()[0]))
    hosts = [value.split()[-1].rstrip(".") for value in ranked]
    if hosts == [""]:  # RFC 7505
        return Finding(about, WRONG, f"{what} arrive nowhere: {domain} says that it takes no mail (MX 0 .)", enter)
    if typed := [host for host in hosts if _is_address(host)]:
        why = f"an MX record must name a host, and {listed(typed)} is an address: servers do not send to it"
        return Finding(about, WRONG, why, enter)
    dead = [host for host in hosts if not reached(dns, host)]
    if len(dead) == len(hosts):
        return Finding(about, WRONG, f"{what} arrive nowhere: {_no_address(dead)}", enter)
    good = f"{what} go to {listed(host for host in hosts if host not in dead)}"
    return Finding(about, OK, f"{good}; but {_no_address(dead)}" if dead else good)


def _no_address(hosts: list[str]) -> str:
    return f"{listed(hosts)} {'has' if len(hosts) == 1 else 'have'} no address that is reached from outside"


def unsubscribing(dns: DnsQuestions) -> Finding:
    """Check that mails have an unsubscribe link that works. Raises NoDnsAnswer."""
    about, url = "unsubscribe", settings.PUBLIC_URL
    if not url:
        why = "PUBLIC_URL is not set, so mails have no link; Gmail and Yahoo want one of whoever sends in bulk"
        return Finding(about, MISSING, why)
    host = urlsplit(url).hostname or ""
    if not url.startswith("https:"):
        return Finding(about, WRONG, f"PUBLIC_URL is {url}: recipients cannot reach it, and one click needs https")
    if not (_is_address(host) or reached(dns, host)):
        why = f"{_no_address([host])}, so no link of a mail works"
        return Finding(about, MISSING, why, DnsEntry(host, "A", "ADDRESS_OF_THIS_INSTALLATION"))
    return Finding(about, OK, f"links lead to {url}")


def bounces(return_path: str, verp: bool, command: str) -> Finding:
    """Check that bounces reach mailhub. command: directs them here."""
    about = "bounces"
    if not verp:
        return Finding(about, NOT_KNOWN, f"they go to {return_path}, and mailhub learns nothing of them: {command}")
    doors = [name for name in ("BOUNCE_RECEIVER", "BOUNCE_MAILBOX") if getattr(settings, name)]
    if not doors:
        why = "they come back to mailhub, which takes none: set BOUNCE_RECEIVER or BOUNCE_MAILBOX for all processes"
        return Finding(about, WRONG, why)
    return Finding(about, OK, f"they come back to mailhub, by {listed(doors)}")


def about_mx(what: str) -> str:
    return "MX" if " and " in what else f"MX for {what}"


def reached(dns: DnsQuestions, host: str) -> bool:
    """Return whether the host has an address outside private networks. Raises NoDnsAnswer."""
    return any(not _inside(address) for address in dns.addresses(host))


def _inside(address: IpAddress) -> bool:
    if address.is_loopback or address.is_link_local or address.is_unspecified:
        return True
    return any(address in network for network in INSIDE if network.version == address.version)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

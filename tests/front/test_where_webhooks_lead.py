"""Where a webhook may lead: into the public network, by whatever name or address, and nowhere else."""

import asyncio
import socket

import pytest

from tests.front.test_webhooks import receiver
from vendors import webhook_http
from vendors.outcomes import CallError
from vendors.webhook_http import Forbidden

__all__ = ["receiver"]


def _refuse() -> None:
    raise ConnectionRefusedError


def post(url, body, headers):
    return asyncio.run(webhook_http.post_once(url, body, headers))


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://localhost/",
        "https://10.0.0.7/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/",
        "https://[fe80::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://2130706433/",
        "https://[fec0::1]/",
        "https://[::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://192.0.0.192/",
        "https://192.0.0.8/",
        "https://192.0.0.9/",
        "https://192.0.0.10/",
        "https://192.88.99.1/",
        "https://168.63.129.16/",
        "https://100.64.0.1/",
        "https://100.100.100.200/",
        "https://198.18.0.1/",
        "https://203.0.113.9/",
        "https://[3fff::1]/",
        "https://[2001:db8::1]/",
        "https://[fd00:ec2::254]/",
        "https://[64:ff9b:1::1]/",
        "https://[5f00::1]/",
        "https://[2002:a83f:8110::]/",
        "https://[::ffff:192.0.0.192]/",
        "https://[64:ff9b::a83f:8110]/",
        "https://[2001:0:a9fe:a9fe::1]/",
        "https://[ff02::1]/",
    ],
)
def test_not_into_a_network_of_our_own_and_no_connection_is_made(url, monkeypatch):
    def connect(*_):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(webhook_http, "_connect_checked", connect)
    answer = post(url, b"{}", {})
    assert answer.status is None and not answer.is_taken
    assert "no address of the public network" in answer.note


@pytest.mark.parametrize(
    "url",
    ["ftp://example.org/", "http://example.org/", "https://u:p@example.org/", "https:///x", "x", "https://[/"],
)
def test_not_to_what_is_no_https_address(url):
    with pytest.raises(Forbidden):
        webhook_http.check_url(url)


@pytest.mark.parametrize("port", [0, 1, 21, 22, 25, 465, 587, 853, 2375, 5432, 6379, 9200, 11211, 27017])
@pytest.mark.parametrize("networks", [[], ["127.0.0.0/8"]])
def test_not_to_a_port_at_which_other_services_listen(port, networks, settings, monkeypatch):
    settings.WEBHOOK_NETWORKS = networks
    where = "127.0.0.1" if networks else "93.184.216.34"
    monkeypatch.setattr(webhook_http.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (where, port))])
    for url in (f"https://example.org:{port}/", f"https://127.0.0.1:{port}/"):
        with pytest.raises(Forbidden, match=f"the port {port}: use 443"):
            webhook_http.check_url(url)
        assert "the port" in post(url, b"", {}).note, "also one that was entered before"


def test_ports_of_the_web_and_high_ones_or_those_that_are_named(settings):
    for port in ("", ":443", ":80", ":8443", ":8080", ":3000", ":32801"):
        webhook_http.check_url(f"https://example.org{port}/")
    settings.WEBHOOK_PORTS = [443, 6379]
    webhook_http.check_url("https://example.org:6379/")
    with pytest.raises(Forbidden):
        webhook_http.check_url("https://example.org:8443/")


def test_a_name_that_leads_to_one_private_address_is_refused(monkeypatch):
    found = [(0, 0, 0, "", ("93.184.216.34", 443)), (0, 0, 0, "", ("192.168.1.1", 443))]
    monkeypatch.setattr(webhook_http.socket, "getaddrinfo", lambda *_, **__: found)
    assert "no address of the public network" in post("https://example.org/", b"", {}).note


def test_who_asks_for_a_name_of_our_own_learns_no_more_than_of_one_that_is_none(monkeypatch):
    url = "https://books.internal/"
    monkeypatch.setattr(webhook_http.socket, "getaddrinfo", lambda *_, **__: _refuse())
    unknown = post(url, b"", {})
    monkeypatch.setattr(webhook_http.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("10.1.2.3", 443))])
    assert post(url, b"", {}) == unknown


def test_an_address_of_the_public_network_inside_another_one_is_one(monkeypatch):
    reached = []

    async def refused(parts, address, port):
        reached.append(address)
        raise CallError("no connection", written=False) from ConnectionRefusedError()

    monkeypatch.setattr(webhook_http, "_connect_checked", refused)
    assert "ConnectionRefusedError" in post("https://[64:ff9b::5db8:d822]/", b"", {}).note
    assert reached == ["64:ff9b::5db8:d822"], "networks without IPv4 reach it in this way"


def test_the_connection_goes_to_the_address_that_was_looked_at(receiver, monkeypatch):
    asked = []
    real = socket.getaddrinfo

    def once(host, *rest, **more):
        asked.append(host)
        return real("127.0.0.1" if host == "rebind.example" else host, *rest, **more)

    monkeypatch.setattr(webhook_http.socket, "getaddrinfo", once)
    url = receiver.url.replace("127.0.0.1", "rebind.example")
    assert post(url, b"{}", {}).is_taken
    assert asked.count("rebind.example") == 1, "a name that is asked twice could lead elsewhere the second time"
    assert receiver.got[0][0]["Host"].startswith("rebind.example:")


def test_plain_http_only_inside_the_allowed_networks(settings):
    settings.WEBHOOK_NETWORKS = ["10.0.0.0/8"]
    assert "must be an https URL" in post("http://127.0.0.1:1/", b"", {}).note

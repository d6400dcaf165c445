"""manage.py doctor: what the DNS lacks, told with the record to enter, by a DNS server of our own."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from campaigns.models import Identity
from campaigns.senders.deliverability import dns_questions, identity_checks
from campaigns.senders.deliverability.findings import WRONG, DnsEntry, Finding
from tests import factories as make
from tests.dns_server import DnsServer, dns_server
from vendors.adapters import dkim

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_workers")]
HERE = "velma.example"
KEY = dkim.DkimKey(HERE, "mh1", dkim.new_private_key())


@pytest.fixture
def dns(settings: Any) -> Iterator[DnsServer]:
    """In which all is well for Velma's identity."""
    with dns_server(settings) as server:
        server.text(HERE, "google-site-verification=x", "v=spf1 ip4:192.0.2.0/24 ~all")
        server.text(f"mh1._domainkey.{HERE}", dkim.dns_record(KEY))
        server.text(f"_dmarc.{HERE}", "v=DMARC1; p=quarantine; rua=mailto:d@velma.example")
        server.records[HERE, "MX"] = ["10 mx.velma.example."]
        server.records["mx.velma.example", "A"] = ["198.51.100.7"]
        server.records["mail.velma.example", "A"] = ["198.51.100.8"]
        settings.PUBLIC_URL = "https://mail.velma.example"
        settings.BOUNCE_RECEIVER = "lmtp://127.0.0.1:2424"
        yield server


@pytest.fixture
def identity(dns: DnsServer) -> Identity:
    relay = {"host": "relay.example", "sender": "x@y.example"}
    dns.records["relay.example", "A"] = ["192.0.2.25"]
    velma = make.sponsor("Velma")
    make.vendor("post", adapter="smtp", settings=relay)
    Identity.objects.all().delete()
    return Identity.objects.create(
        sponsor=velma, name="main", from_name="Velma", from_address=f"post@{HERE}", default=True,
        dkim_domain=KEY.domain, dkim_selector=KEY.selector, secret={"private_key": KEY.private_key}, verp=True,
    )  # fmt: skip


def ask(*options: str) -> tuple[dict[str, dict[str, Any]], int]:
    """What is found, by what it is about, and the exit code."""
    out, code = io.StringIO(), 0
    try:
        call_command("doctor", "--identity", "Velma/main", "--json", *options, stdout=out)
    except CommandError as error:
        code = error.returncode
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    return {one["about"]: one for one in found}, code


def status(*options: str) -> dict[str, str]:
    return {about: one["status"] for about, one in ask(*options)[0].items()}


def test_an_identity_of_which_all_is_well(identity: Identity) -> None:
    found, code = ask()
    assert code == 0 and {one["status"] for one in found.values()} == {"ok"}
    assert list(found) == ["SPF", "SPF and relay", "DKIM", "DMARC", "alignment", "unsubscribe", "bounces", "MX"]
    assert "(2,048 bits)" in found["DKIM"]["sentence"] and "relay.example" in found["SPF and relay"]["sentence"]


def test_a_domain_of_which_nothing_is_entered_gets_every_record(identity: Identity, dns: DnsServer) -> None:
    dns.records = {("relay.example", "A"): ["192.0.2.25"]}
    found, code = ask()
    assert code == 1 and found.pop("bounces")["status"] == "ok"
    assert {one["status"] for one in found.values()} == {"missing"}
    assert [tuple(one["enter"].values()) for one in found.values()] == [
        (HERE, "TXT", "v=spf1 a:relay.example ~all"),
        (f"mh1._domainkey.{HERE}", "TXT", dkim.dns_record(KEY)),
        (f"_dmarc.{HERE}", "TXT", "v=DMARC1; p=none"),
        (f"mail.{HERE}", "A", "ADDRESS_OF_THIS_INSTALLATION"),
        (HERE, "MX", "10 HOST_THAT_TAKES_ITS_MAIL."),
    ]
    assert "does not exist in the DNS" in found["DKIM"]["sentence"]


def test_what_it_prints_to_enter_makes_all_well(identity: Identity, dns: DnsServer) -> None:
    dns.records = {("mx.example", "A"): ["198.51.100.7"]}
    dns.text("_spf.relay.example", "v=spf1 ip4:192.0.2.0/28 -all")
    options = ["--sends-from", "_spf.relay.example", "--sends-from", "192.0.2.99"]
    for one in filter(None, [one["enter"] for one in ask(*options)[0].values()]):
        name, kind, value = one.values()
        if kind == "TXT":
            dns.text(name, value)
        else:
            known = {"10 HOST_THAT_TAKES_ITS_MAIL.": "10 mx.example.", "ADDRESS_OF_THIS_INSTALLATION": "198.51.100.9"}
            dns.records[name, kind] = [known[value]]
    assert dns.records[HERE, "TXT"] == ['"v=spf1 include:_spf.relay.example ip4:192.0.2.99 ~all"']
    found, code = ask(*options)
    assert code == 0 and {one["status"] for one in found.values()} == {"ok"}


def test_people_read_lines_and_the_record_below(identity: Identity, dns: DnsServer) -> None:
    del dns.records[f"_dmarc.{HERE}", "TXT"]
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"^1 of 7 is missing or wrong"):
        call_command("doctor", stdout=out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "Velma/main: Velma <post@velma.example>"
    assert lines[1].startswith("SPF            ok        velma.example has one record")
    assert f"               enter     _dmarc.{HERE} TXT v=DMARC1; p=none" in lines


@pytest.mark.parametrize("how", ["failing", "silent"])
def test_no_answer_is_not_a_missing_record(
    identity: Identity, dns: DnsServer, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns_questions, "EACH", 5.0 if how == "failing" else 1.5)
    getattr(dns, how).update({f"mh1._domainkey.{HERE}", "mx.velma.example"})
    found, code = ask()
    bad = {about: one["sentence"] for about, one in found.items() if one["status"] != "ok"}
    assert code == 3 and {found[about]["status"] for about in bad} == {"no answer"}
    assert set(bad) == {"DKIM", "MX"}
    assert ("SERVFAIL" if how == "failing" else "did not answer in time") in bad["DKIM"]


def test_all_questions_together_have_an_end(
    identity: Identity, dns: DnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns_questions, "ALL", 0.2)
    dns.silent.update(name for name, _ in dns.records)
    found, code = ask()
    assert code == 3 and found.pop("bounces") and {one["status"] for one in found.values()} == {"no answer"}
    assert any("not asked any more" in one["sentence"] for one in found.values())


def test_a_record_that_needs_tcp_is_read_whole(identity: Identity, dns: DnsServer) -> None:
    dns.text(f"mh1._domainkey.{HERE}", dkim.dns_record(KEY) + "; n=" + "x" * 600)
    assert status()["DKIM"] == "ok"
    assert ("tcp", f"mh1._domainkey.{HERE}", "TXT") in dns.asked


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ("v=spf1 ip4:192.0.2.0/24 +all", "allows everybody"),
        ("v=spf1 ip4:192.0.2.300 ~all", "'ip4:192.0.2.300' is not complete or not well-formed"),
        ("v=spf1 a/24// ~all", "'a/24//' is not complete or not well-formed"),
        ("v=spf1 include: ~all", "'include:' is not complete"),
        ("v=spf1 192.0.2.1 ~all", "'192.0.2.1' is no term of SPF"),
        ("v=spf1 include:gone.example ~all", "include of gone.example, which has no record"),
        ("v=spf1 include:velma.example ~all", "include of velma.example, whose record leads back to itself"),
        ("v=spf1 a:n1.example a:n2.example mx:n3.example ~all", "3 of its look-ups find nothing"),
        ("v=spf1 redirect=two.example", "redirect of two.example, which has several records"),
        ("v=spf1 include:" + "x" * 70 + ".example ~all", "which has no record"),
    ],
)
def test_a_broken_record_of_spf_is_told(identity: Identity, dns: DnsServer, record: str, fault: str) -> None:
    dns.text(HERE, record)
    dns.text("two.example", "v=spf1 -all", "v=spf1 ~all")
    found, code = ask()
    assert code == 1 and found["SPF"]["status"] == "wrong" and fault in found["SPF"]["sentence"]


def test_a_record_with_many_faults_is_told_briefly_and_without_control_characters(
    identity: Identity, dns: DnsServer
) -> None:
    bad = " ".join(["x" * 200] * 60)
    dns.text(HERE, "v=spf1 include:two.example ~all")
    dns.text("two.example", f"v=spf1 include:{HERE} {bad} include:two.example ~all")
    sentence = ask()[0]["SPF"]["sentence"]
    assert f"include of {HERE}, whose record leads back to itself" in sentence
    assert sentence.count("is no term of SPF") == 9 and len(sentence) < 2_000
    found = Finding("SPF", WRONG, "\x1b[2J \u202e", DnsEntry(HERE, "TXT", "v=spf1 \x1b ~all"))
    assert found.sentence + str(found.enter) == "\\x1b[2J \\u202evelma.example TXT v=spf1 \\x1b ~all"


def test_two_records_of_spf_are_as_good_as_none(identity: Identity, dns: DnsServer) -> None:
    dns.text(HERE, "v=spf1 ip4:192.0.2.0/24 ~all", "V=SPF1", "v=spf10 is another")
    found = ask()[0]["SPF"]
    assert found["status"] == "wrong" and "2 records of SPF" in found["sentence"]


def test_look_ups_are_counted_through_includes_and_what_follows_all_is_not(identity: Identity, dns: DnsServer) -> None:
    dns.text(HERE, "v=spf1 include:a.example redirect=b.example")
    dns.text("a.example", "v=spf1 " + " ".join(f"a:{n}.a.example" for n in range(7)) + " -all")
    dns.text("b.example", "v=spf1 ip4:192.0.2.0/24 mx ?all a a a")
    dns.records |= {(f"{n}.a.example", "A"): ["198.51.100.1"] for n in range(7)}
    dns.records["b.example", "MX"] = ["1 mx.velma.example."]
    found = ask()[0]
    assert found["SPF"]["sentence"].endswith("which needs 10 of 10 look-ups")
    assert found["SPF and relay"]["status"] == "ok"
    dns.text("b.example", "v=spf1 ip4:192.0.2.0/24 mx a ?all")
    assert "needs 11 look-ups" in ask()[0]["SPF"]["sentence"]


@pytest.mark.parametrize(
    ("record", "allowed"),
    [
        ("v=spf1 ip4:192.0.2.25 -all", True),
        ("v=spf1 -ip4:192.0.2.25 ip4:192.0.2.0/24 -all", False),
        ("v=spf1 a:relay.example -all", True),
        ("v=spf1 a:near.example/24 -all", True),
        ("v=spf1 a:near.example/25 -all", False),
        ("v=spf1 mx:in.example -all", True),
        ("v=spf1 include:soft.example include:hard.example -all", True),
        ("v=spf1 include:soft.example -all", False),
        ("v=spf1 redirect=hard.example", True),
        ("v=spf1 ip6:2001:db8::/32 -all", False),
        ("v=spf1 exists:%{i}.list.example -all", False),
        ("v=spf1", False),
    ],
)
def test_an_address_from_which_the_relay_sends_is_allowed_or_not(
    identity: Identity, dns: DnsServer, record: str, allowed: bool
) -> None:
    dns.text(HERE, record)
    dns.text("soft.example", "v=spf1 ~ip4:192.0.2.0/24 -all")
    dns.text("hard.example", "v=spf1 ip4:192.0.2.16/28 -all")
    dns.records |= {("near.example", "A"): ["192.0.2.200"], ("in.example", "MX"): ["1 relay.example."]}
    found = ask("--sends-from", "192.0.2.25")[0]
    assert found["SPF"]["status"] == "ok"
    assert found["SPF and relay"]["status"] == ("ok" if allowed else "wrong")
    if not allowed:
        assert "ip4:192.0.2.25" in found["SPF and relay"]["enter"]["value"]


def test_from_where_a_relay_sends_is_not_known_unless_somebody_says_it(identity: Identity, dns: DnsServer) -> None:
    dns.text(HERE, "v=spf1 include:_spf.other.example -all")
    dns.text("_spf.other.example", "v=spf1 include:deep.example -all")
    dns.text("deep.example", "v=spf1 ip4:203.0.113.0/24 -all")
    found, code = ask()
    assert code == 0 and found["SPF and relay"]["status"] == "not known"
    assert "--sends-from" in found["SPF and relay"]["sentence"]
    assert status("--sends-from", "deep.example")["SPF and relay"] == "ok"
    assert status("--sends-from", "203.0.113.0/24")["SPF and relay"] == "ok"
    assert status("--sends-from", "203.0.112.0/23")["SPF and relay"] == "wrong"
    refused = ask("--sends-from", "relay.example")[0]["SPF and relay"]
    assert refused["enter"]["value"] == "v=spf1 include:_spf.other.example a:relay.example -all"


def other_key(bits: int = 2048) -> str:
    """The record of another key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    made = rsa.generate_private_key(65537, bits)
    kind = serialization.PrivateFormat.PKCS8
    pem = made.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    return dkim.dns_record(dkim.DkimKey(HERE, "mh1", pem.decode()))


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (lambda: "v=DKIM1; k=rsa; p=", "revoked"),
        (lambda: "v=DKIM1; k=rsa", "no key"),
        (lambda: "v=DKIM1; k=rsa; p=AAAA", "cannot be read"),
        (lambda: dkim.dns_record(KEY)[:-40], "cannot be read"),
        (lambda: "k=rsa; v=DKIM1; p=AAAA", "v, if there is one, must come first"),
        (lambda: "v=DKIM1; k=ed25519; p=AAAA", "of the kind ed25519"),
        (lambda: dkim.dns_record(KEY) + "; h=sha1", "SHA-256"),
        (lambda: dkim.dns_record(KEY) + "; s=tlsrpt", "not for e-mail"),
        (lambda: dkim.dns_record(KEY) + "; p=AAAA", "the tag p twice"),
        (lambda: "hello", "not of the form tag=value"),
        (other_key, "another key than mailhub signs with"),
        (lambda: other_key(1024), "another key than"),
    ],
)
def test_a_dkim_record_that_verifies_nothing_is_told_with_the_right_one(
    identity: Identity, dns: DnsServer, record: Any, fault: str
) -> None:
    dns.text(f"mh1._domainkey.{HERE}", record())
    found, code = ask()
    assert code == 1 and found["DKIM"]["status"] == "wrong" and fault in found["DKIM"]["sentence"]
    assert found["DKIM"]["enter"]["value"] == dkim.dns_record(KEY)
    assert "PRIVATE" not in json.dumps(found)


def test_blanks_within_a_key_are_none_of_it_and_a_test_is_told(identity: Identity, dns: DnsServer) -> None:
    halves = dkim.dns_record(KEY)[:100], dkim.dns_record(KEY)[100:]
    dns.text(f"mh1._domainkey.{HERE}", " ".join(halves) + ";t=y:s ")
    found = ask()[0]["DKIM"]
    assert found["status"] == "ok" and "it is a test" in found["sentence"]


def test_without_a_key_of_ours_the_relay_must_sign(identity: Identity, dns: DnsServer) -> None:
    Identity.objects.update(dkim_domain="", dkim_selector="", secret={})
    found, code = ask()
    assert code == 1 and "manage.py identity dkim Velma main --selector mailhub1" in found["DKIM"]["sentence"]
    found, code = ask("--relay-selector", "mh1")
    assert code == 0 and "has a key of 2,048 bits" in found["relay's DKIM"]["sentence"] and "DKIM" not in found
    found, code = ask("--relay-selector", "s1._domainkey.relay.example")
    assert code == 1 and found["relay's DKIM"]["status"] == "missing"
    assert "not the DKIM's relay.example" in found["alignment"]["sentence"]


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (["v=DMARC1; p=monitor"], "must be none, quarantine or reject"),
        (["v=DMARC1; rua=mailto:a@velma.example"], "must be none, quarantine or reject"),
        (["v=DMARC1; p"], "not of the form tag=value"),
        (["v=DMARC1; p=none", "v=DMARC1; p=reject"], "has 2 records, so none counts"),
    ],
)
def test_a_broken_record_of_dmarc_is_told(identity: Identity, dns: DnsServer, record: list[str], fault: str) -> None:
    dns.text(f"_dmarc.{HERE}", *record)
    found, code = ask()
    assert code == 1 and found["DMARC"]["status"] == "wrong" and fault in found["DMARC"]["sentence"]


@pytest.mark.parametrize(
    ("policy", "signer", "return_path", "passes"),
    [
        ("p=none", HERE, "bounces@other.example", True),
        ("p=none; adkim=s", HERE, "bounces@other.example", False),
        ("p=none; adkim=s", f"news.{HERE}", "bounces@other.example", True),
        ("p=none; adkim=s", HERE, f"bounces@b.{HERE}", True),
        ("p=none; adkim=s; aspf=s", HERE, f"bounces@b.{HERE}", False),
        ("p=none", "", f"bounces@b.{HERE}", True),
        ("p=none", "", "bounces@other.example", False),
        ("p=none; aspf=s", "", f"bounces@news.{HERE}", True),
    ],
)
def test_from_is_aligned_with_the_signature_or_the_return_path(
    identity: Identity, dns: DnsServer, policy: str, signer: str, return_path: str, passes: bool
) -> None:
    """From's domain is news.velma.example, and the record of DMARC is the one above."""
    dns.text(f"_dmarc.{HERE}", f"v=DMARC1; {policy}; sp=reject")
    dns.text("_dmarc.other.example", "v=DMARC1; p=none")
    fields = {"from_address": f"post@news.{HERE}", "return_path": return_path, "dkim_domain": signer}
    if not signer:
        fields |= {"dkim_selector": "", "secret": {}}
    Identity.objects.update(**fields)
    found = ask()[0]
    assert found["DMARC"]["sentence"] == f"mails that fail: reject, from the record of {HERE}"
    assert found["alignment"]["status"] == ("ok" if passes else "wrong")


@pytest.mark.parametrize(
    ("mx", "sentence"),
    [
        (["0 ."], "takes no mail"),
        (["10 198.51.100.7."], "198.51.100.7 is an address"),
        (["10 gone.example."], "gone.example has no address that is reached from outside"),
        (["10 inside.example.", "20 gone.example."], "inside.example and gone.example have no address"),
    ],
)
def test_answers_that_would_arrive_nowhere_are_told(
    identity: Identity, dns: DnsServer, mx: list[str], sentence: str
) -> None:
    dns.records[HERE, "MX"] = mx
    dns.records["inside.example", "A"] = ["10.0.0.1"]
    dns.records["inside.example", "AAAA"] = ["fd00::1", "::1"]
    found, code = ask()
    at_mx = found["MX"]
    assert code == 1 and at_mx["status"] == "wrong"
    assert sentence in at_mx["sentence"]


def test_answers_and_bounces_may_go_to_two_domains_and_to_an_address_without_mx(
    identity: Identity, dns: DnsServer
) -> None:
    Identity.objects.update(reply_to="Help <help@Desk.Velma.example>", return_path="b@bounces.velma.example")
    dns.records["desk.velma.example", "AAAA"] = ["2001:db8::7"]
    found = ask()[0]
    assert found["MX for answers"]["status"] == "ok"
    assert found["MX for bounces"]["status"] == "missing"
    assert "bounces arrive nowhere" in found["MX for bounces"]["sentence"]
    assert found["SPF"]["enter"]["name"] == "bounces.velma.example"


@pytest.mark.parametrize(
    ("url", "status", "sentence"),
    [
        ("", "missing", "PUBLIC_URL is not set"),
        ("http://localhost:8000", "wrong", "one click needs https"),
        ("https://gone.velma.example", "missing", "gone.velma.example has no address that is reached"),
        ("https://198.51.100.8", "ok", "links lead to https://198.51.100.8"),
    ],
)
def test_a_link_to_unsubscribe_must_lead_here(
    identity: Identity, settings: Any, url: str, status: str, sentence: str
) -> None:
    settings.PUBLIC_URL = url
    found = ask()[0]["unsubscribe"]
    assert found["status"] == status and sentence in found["sentence"]


def test_bounces_come_back_where_somebody_takes_them(identity: Identity, settings: Any) -> None:
    assert "by BOUNCE_RECEIVER" in ask()[0]["bounces"]["sentence"]
    settings.BOUNCE_RECEIVER = ""
    assert ask()[0]["bounces"]["status"] == "wrong"
    settings.BOUNCE_MAILBOX = "imaps://velma:s3cret@mx.velma.example/INBOX"
    found = ask()[0]["bounces"]
    assert found["status"] == "ok" and "s3cret" not in found["sentence"]
    Identity.objects.update(verp=False)
    found, code = ask()
    assert code == 0 and found["bounces"]["status"] == "not known"
    assert "manage.py identity set Velma main --verp" in found["bounces"]["sentence"]


@pytest.mark.parametrize(("name", "code"), [("Velma", 2), ("Velma/other", 1), ("Bob/main", 1)])
def test_an_identity_that_is_not_there_is_a_sentence(identity: Identity, name: str, code: int) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("doctor", "--identity", name)
    assert caught.value.returncode == code


def test_a_machine_that_names_no_dns_server_is_told_what_to_set(
    identity: Identity, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DNS_SERVERS = []

    def none(**_: Any) -> Any:
        raise dns_questions.dns.resolver.NoResolverConfiguration

    monkeypatch.setattr(dns_questions.dns.resolver, "Resolver", none)
    found, code = ask()
    assert code == 3 and found.pop("bounces") and all("set DNS_SERVERS" in one["sentence"] for one in found.values())


PIECES = [
    *(
        "v=spf1",
        "v=DMARC1",
        "v=DKIM1",
        "p=",
        "k=rsa",
        "t=y",
        "psd=y",
        ";",
        "=",
        " ",
        "include:",
        "redirect=",
        "exists:",
    ),
    *("a", "mx", "/", "//", "999", "ip4:", "ip6:", "all", "-", "~", "%{i}", "192.0.2.1", "::1%lo", HERE, ".."),
    *("\\300", "ü", "\x07"),
]


@settings_of_hypothesis(max_examples=60)
@given(data=st.data())
def test_whatever_the_dns_says_is_a_finding(identity: Identity, dns: DnsServer, data: st.DataObject) -> None:
    texts = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), min_size=1, max_size=2)
    for name in (HERE, f"mh1._domainkey.{HERE}", f"_dmarc.{HERE}"):
        dns.text(name, *data.draw(texts, label=name))
    found = identity_checks.check_identity(identity, ["192.0.2.1", HERE, "::1%lo", "..", "\\300"], ["mh1", ".."])
    assert {one.about for one in found} >= {"SPF", "DKIM", "DMARC", "MX"}

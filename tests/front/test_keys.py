"""Who may come in, with what, how often, and that a sponsor never sees anything of another."""

import io
import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from campaigns.doors.front import keys, rate_limits
from campaigns.doors.front.problems import Problem
from campaigns.models import ApiKey, Session
from tests import factories
from tests.front.program import Program, api_vendor, forget, fresh, letter, problem
from tests.programs import wait_until

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


def command(*args):
    out = io.StringIO()
    call_command("apikey", *args, stdout=out)
    return out.getvalue()


def status(token):
    return Client(headers={"Authorization": f"Bearer {token}"}).get("/api/v1/services").status_code


@pytest.mark.parametrize("days", ["1e300", "nan", "3e6", "-1e6"])
def test_a_key_cannot_expire_at_a_time_that_there_is_not(days):
    made = json.loads(command("create", "--sponsor", "Hers", "--new-sponsor", "--json"))
    for verb in (["create", "--sponsor", "Hers"], ["extend", made["prefix"]]):
        with pytest.raises(CommandError, match=r"there is no time .* days from now"):
            command(*verb, f"--days={days}")
    with pytest.raises(CommandError, match=r"there is no time .* hours from now"):
        command("rotate", made["prefix"], "--hours=1e300")
    assert ApiKey.objects.get().expires_at is None


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x", "Basic eDp5", "Bearer " + "x" * 500, "Bearer \u00e9"])
def test_without_a_valid_key_nobody_comes_in(header):
    for path in ("services", "sessions/ses_0", "sessions/ses_0/messages"):
        answer = Client(headers={"Authorization": header}).get(f"/api/v1/{path}")
        problem(answer, "unauthorized", 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_key_is_shown_once_and_only_its_hash_is_kept():
    program = Program()
    row = ApiKey.objects.get()
    assert program.token.startswith(row.prefix + "_") and row.prefix.startswith("mh_live_")
    assert program.token not in str(ApiKey.objects.values()) and len(bytes(row.digest)) == 32


def test_each_endpoint_needs_its_scope():
    vendor = api_vendor()
    sender, reader = Program(scopes=("send",)), Program(scopes=("read",))
    problem(reader.send(letter(vendor)), "forbidden", 403)
    session = sender.send(letter(vendor)).json()["links"]
    problem(sender.get(session["self"]), "forbidden", 403)
    problem(sender.get(session["messages"]), "forbidden", 403)
    problem(sender.post(session["stop"]), "forbidden", 403)
    problem(reader.post(session["retry"]), "forbidden", 403)
    assert sender.get("services").status_code == reader.get("services").status_code == 200


def test_a_sponsor_never_sees_anything_of_another():
    vendor = api_vendor()
    ours, theirs = Program(), Program()
    links = ours.send(letter(vendor)).json()["links"]
    assert ours.get(links["self"]).status_code == ours.get(links["messages"]).status_code == 200
    unknown = theirs.get("sessions/ses_" + "0" * 32)
    for path in (links["self"], links["messages"]):
        foreign = theirs.get(path)
        problem(foreign, "not-found", 404)
        assert foreign.content == unknown.content, "what is foreign looks like what is not there"
    for path in (links["stop"], links["retry"]):
        problem(theirs.post(path), "not-found", 404)
    assert Session.objects.get().job.status == "DISPATCHED"


def test_a_test_key_goes_to_sandboxes_only_and_sees_only_what_test_keys_sent():
    real, sandbox = api_vendor(slug="people"), api_vendor(slug="sand", sandbox=True)
    live = Program()
    test = Program(live.sponsor, "test")
    problem(test.send(letter(real)), "forbidden", 403)
    sent = test.send(letter(sandbox))
    assert sent.json()["mode"] == "test" and Session.objects.get().test
    by_channel = test.send(letter(channel="email"))
    assert by_channel.json()["vendor"] == "sand"
    assert live.send(letter(channel="email")).json()["vendor"] == "people"
    problem(live.get(sent.json()["links"]["self"]), "not-found", 404)
    assert [one["slug"] for one in test.get("services").json()["data"]] == ["sand"]


def test_a_revoked_key_is_dead_within_a_second():
    program = Program()
    assert status(program.token) == 200
    assert "revoked" in command("revoke", program.key.prefix)
    wait_until(lambda: status(program.token) == 401, "the key is dead")
    assert "revoked already" in command("revoke", program.key.prefix)


def test_what_a_process_has_read_of_a_key_is_believed_for_less_than_a_second():
    assert keys.FRESH < 1


def test_a_key_expires():
    program = Program(expires_at=timezone.now() + timedelta(hours=1))
    assert status(program.token) == 200
    ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    forget()
    assert status(program.token) == 401


def test_during_a_rotation_both_keys_are_valid():
    sponsor = factories.sponsor()
    made = json.loads(command("create", "--sponsor", sponsor.name, "--scope", "send,read", "--json"))
    fresh_one = json.loads(command("rotate", made["prefix"], "--hours", "2", "--json"))
    assert status(made["key"]) == status(fresh_one["key"]) == 200
    assert fresh_one["scopes"] == ["send", "read"] and fresh_one["expires_at"] is None
    old = ApiKey.objects.get(prefix=made["prefix"])
    assert timedelta(hours=1) < old.expires_at - timezone.now() <= timedelta(hours=2)


def test_the_last_use_is_known_to_the_minute():
    program = Program()
    assert status(program.token) == 200
    assert timezone.now() - ApiKey.objects.get().last_used_at < timedelta(minutes=1)


def test_a_key_that_asks_too_often_hears_when_to_come_back():
    program = Program(requests_per_minute=3)
    answers = [program.get("services") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    problem(answers[3], "rate-limited", 429)
    headers = answers[3].headers
    assert 1 <= int(headers["Retry-After"]) <= 60
    assert headers["RateLimit-Policy"] == '"key";q=3;w=60'
    assert headers["RateLimit"] == f'"key";r=0;t={headers["Retry-After"]}'
    assert Program(program.sponsor).get("services").status_code == 200, "the others are not concerned"


def test_requests_that_send_are_counted_once_whether_they_are_good_or_bad():
    program, vendor = Program(requests_per_minute=5), api_vendor()
    assert program.send(letter(vendor)).status_code == program.send(letter(vendor)).status_code == 202
    assert program.send("no json").status_code == 400
    assert program.send(letter(vendor, "nobody")).status_code == 422
    assert program.send(letter(vendor), None, "/api/v1/messages?dry_run=true").status_code == 200
    for body in (letter(vendor), "no json"):
        problem(program.send(body), "rate-limited", 429)
    assert Session.objects.count() == 2, "nothing is stored for who asks too often"


def test_of_requests_that_are_served_together_as_many_pass_as_the_key_has_left():
    key = Program(requests_per_minute=5).key
    assert [rate_limits.take_requests(key.pk, 5, requests) for requests in (3, 4, 1)] == [3, 2, 0]
    assert rate_limits.take_requests(key.pk, 0, 1000) == 1000, "0 is no limit"


def test_a_key_that_asked_too_often_is_turned_away_at_the_door_for_a_moment(monkeypatch):
    long, short = Program(requests_per_minute=1).key, Program(requests_per_minute=1).key
    for key, moment in ((long, 600), (short, 0.01)):
        monkeypatch.setattr(rate_limits, "MOMENT", moment)
        assert _let_in(key.pk, 1)
        assert [rate_limits.take_requests(key.pk, 1, 1) for _ in range(2)] == [1, 0]
    assert not _let_in(long.pk, 1)
    assert _let_in(long.pk, 100), "its limit was raised"
    wait_until(lambda: _let_in(short.pk, 1), "the moment is over")


def _let_in(key_id, per_minute):
    try:
        rate_limits.precheck_rate(key_id, per_minute)
    except Problem:
        return False
    return True


def test_the_command_lists_without_secrets_and_names_what_is_wrong():
    program = Program()
    listed = command("list", "--sponsor", program.sponsor.name, "--json")
    assert json.loads(listed)["state"] == "valid" and program.token not in listed
    for args, message in (
        (("create", "--sponsor", "nobody"), "there is no sponsor 'nobody'"),
        (("create", "--sponsor", program.sponsor.name, "--scope", "fly"), "there is no scope 'fly'"),
        (("revoke", "mh_live_x"), "there is no key 'mh_live_x'"),
    ):
        with pytest.raises(CommandError, match=message):
            command(*args)


def test_tokens_that_are_no_keys_do_not_push_keys_out_of_the_front(monkeypatch):
    monkeypatch.setattr(keys, "MOST_KNOWN", 4)
    alpha, beta, known = Program(), Program(), keys.Keyring()
    assert known.find_caller(alpha.token) and known.find_caller(beta.token)
    for number in range(9):
        assert known.find_caller(f"mh_live_{number}") is None
    assert known.cached_owner(alpha.token) == alpha.sponsor.pk and known.cached_owner(beta.token) == beta.sponsor.pk
    for _ in range(3):
        assert known.find_caller(Program().token)
    assert known.cached_owner(alpha.token) is None, "so many keys are not remembered, either"

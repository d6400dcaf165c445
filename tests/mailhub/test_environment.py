"""A setting that cannot be right ends a command with one sentence: the variable, and what to write instead."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from mailhub import environment
from tests import forks

SECRET = "verysecret"


def error_of(monkeypatch: pytest.MonkeyPatch, value: str, read: object, *arguments: object, **options: object) -> str:
    monkeypatch.setenv("SETTING", value)
    with pytest.raises(ImproperlyConfigured) as fault:
        read("SETTING", *arguments, **options)
    return str(fault.value)


@pytest.mark.parametrize("typed", ["ten", "-1", "0", "nan", "inf", "1e99"])
def test_a_time_that_is_no_number_above_zero_is_named(monkeypatch, typed: str) -> None:
    said = error_of(monkeypatch, typed, environment.number_setting, 10)
    assert said == f"SETTING is {typed!r}: give it a number above 0, such as 10"


def test_an_empty_variable_counts_as_absent_and_zero_where_it_means_never(monkeypatch) -> None:
    monkeypatch.setenv("SETTING", "")
    assert environment.number_setting("SETTING", 2.5) == 2.5
    monkeypatch.setenv("SETTING", "0")
    assert environment.number_setting("SETTING", 60, zero=True) == 0


@pytest.mark.parametrize(
    ("typed", "is_set"),
    [
        ("1", True),
        ("true", True),
        ("True", True),
        ("on", True),
        ("", False),
        ("0", False),
        ("false", False),
        ("False", False),
        ("no", False),
    ],
)
def test_a_flag_is_what_charts_and_compose_files_make_of_it(monkeypatch, typed: str, is_set: bool) -> None:
    monkeypatch.setenv("SETTING", typed)
    assert environment.flag_setting("SETTING") is is_set


def test_a_flag_that_is_neither_is_named_and_never_taken_for_off(monkeypatch) -> None:
    said = error_of(monkeypatch, "enabled", environment.flag_setting)
    assert said == "SETTING is 'enabled': give it 1 or 0"


@pytest.mark.parametrize(
    "typed", ["mailhub", "postgre://u:verysecret@h/x", "mysql://u:verysecret@h/x", "postgres://h:x/"]
)
def test_what_is_no_postgresql_is_named_without_its_password(monkeypatch, typed: str) -> None:
    said = error_of(monkeypatch, typed, environment.database_settings, "postgres:///x")
    assert "write postgres://user:password@host:5432/name" in said and SECRET not in said


def test_what_is_no_redis_is_named_without_its_password(monkeypatch) -> None:
    assert SECRET not in error_of(monkeypatch, "http://:verysecret@h/", environment.redis_url, "redis://h")
    assert SECRET not in error_of(monkeypatch, "redis://h,amqp://:verysecret@h", environment.redis_servers, "redis://h")
    monkeypatch.setenv("SETTING", "redis://a/1, unix:///b")
    assert environment.redis_servers("SETTING", "redis://h") == ["redis://a/1", "unix:///b"]


@pytest.mark.parametrize(
    "typed", ["redis://:verysecret@a:1,b:2/0", "redis+cluster://:verysecret@a/0", "redis+sentinel://:verysecret@a,b"]
)
def test_a_list_of_servers_or_a_cluster_is_no_redis(monkeypatch, typed: str) -> None:
    for read in (environment.redis_url, environment.redis_servers, environment.broker_url):
        said = error_of(monkeypatch, typed, read, "redis://h")
        assert "redis+sentinel://one:26379,two:26379/mymaster/0" in said and SECRET not in said


def test_sentinels_are_one_server_in_a_list_and_a_broker(monkeypatch) -> None:
    url = "redis+sentinel://one,two:5/mymaster/0"
    monkeypatch.setenv("SETTING", f"redis://a/1, {url},unix:///b")
    assert environment.redis_servers("SETTING", "redis://h") == ["redis://a/1", url, "unix:///b"]
    for broker in (url, "amqp://u@one//", "memory://", "redis+socket:///a"):
        monkeypatch.setenv("SETTING", broker)
        assert environment.broker_url("SETTING", "redis://h") == broker


def test_the_nodes_of_a_rabbitmq_are_one_broker(monkeypatch) -> None:
    url = "amqps://u:p%40@one//?ssl_ca_certs=/etc/ca.pem"
    monkeypatch.setenv("SETTING", f"{url};{url.replace('one', 'two:5')}")
    assert environment.broker_url("SETTING", "redis://h").split(";")[0] == url


@pytest.mark.parametrize(
    "typed",
    [
        "amqp://",
        "amqps://u:verysecret@one//?ssl_cert_reqs=none",
        "amqp://u:verysecret@one//?ssl_ca_certs=/etc/ca.pem",
        "amqps://u:verysecret@one//;amqp://u:verysecret@two//",
        "amqp://u:verysecret@one//;two",
        "amqp://u:verysecret@one:port//",
    ],
)
def test_what_is_no_rabbitmq_or_would_trust_anybody_is_refused(monkeypatch, typed: str) -> None:
    said = error_of(monkeypatch, typed, environment.broker_url, "redis://h")
    assert "amqps://user:password@host:5671//?ssl_ca_certs=/etc/ca.pem" in said and SECRET not in said


def test_several_hosts_of_a_postgresql_are_tried_for_one_that_takes_writes(monkeypatch) -> None:
    monkeypatch.setenv("SETTING", "postgres://u:p%40@one:6000,two,[::1]:5/mail?connect_timeout=2")
    found = environment.database_settings("SETTING", "")
    assert (found["HOST"], found["PORT"], found["NAME"], found["PASSWORD"]) == (
        "one,two,::1",
        "6000,5432,5",
        "mail",
        "p@",
    )
    assert found["OPTIONS"] == {"connect_timeout": 2, "target_session_attrs": "read-write"}
    monkeypatch.setenv("SETTING", "postgres://u@/mail?host=/a,/b")
    assert environment.database_settings("SETTING", "")["OPTIONS"]["target_session_attrs"] == "read-write"
    monkeypatch.setenv("SETTING", "postgres://u@/mail?host=/a,/b&target_session_attrs=any")
    assert environment.database_settings("SETTING", "")["OPTIONS"]["target_session_attrs"] == "any"
    monkeypatch.setenv("SETTING", "postgres://u@one/mail")
    assert "target_session_attrs" not in environment.database_settings("SETTING", "").get("OPTIONS", {})
    assert "no address" in error_of(monkeypatch, "postgres://u@one,,two/mail", environment.database_settings, "")


def test_zones_and_networks_that_there_are_not_are_named(monkeypatch) -> None:
    assert "no time zone" in error_of(monkeypatch, "Mars/Phobos", environment.time_zone_setting, "UTC")
    assert "'10.0.0.300'" in error_of(monkeypatch, "10.0.0.0/8,10.0.0.300", environment.network_list)


def test_servers_are_addresses_with_or_without_a_port(monkeypatch) -> None:
    monkeypatch.setenv("SETTING", "192.0.2.1, 192.0.2.2:5353,[2001:db8::1]:54,2001:db8::2")
    found = [("192.0.2.1", 53), ("192.0.2.2", 5353), ("2001:db8::1", 54), ("2001:db8::2", 53)]
    assert environment.server_addresses("SETTING", 53) == found
    for typed in ("dns.example", "192.0.2.1:no", "192.0.2.1:99999", "[::1", "192.0.2.1/8", "u@192.0.2.1"):
        assert f"SETTING has {typed!r}: write IP" in error_of(monkeypatch, typed, environment.server_addresses, 53)


@pytest.mark.parametrize("command", ["list_jobs", "audit", "migrate"])
@pytest.mark.slow("processes")
def test_a_command_says_so_in_one_line(command: str, tmp_path: Path) -> None:
    nowhere = {"DATABASE_URL": f"postgres://u@/none?host={tmp_path}", "REDIS_URL": "redis://127.0.0.1:1/0"}
    wrong = {**os.environ, **nowhere, "MAILHUB_HOME": str(tmp_path), "SWEEP_SECONDS": "soon"}
    done = forks.run(["manage.py", command], env=wrong, timeout=120)
    assert done.returncode == 1
    assert done.stderr == "The settings are not right: SWEEP_SECONDS is 'soon': give it a number above 0, such as 10\n"


@pytest.mark.slow("processes")
def test_a_worker_shows_the_settings_of_celery_alone_and_no_password() -> None:
    """As Flower and `celery inspect conf` ask it. Django's settings have secrets, and addresses unknown to Celery."""
    answer = (
        "import json, types; from celery.worker.control import conf; from mailhub.celery import app\n"
        "print(json.dumps(conf(types.SimpleNamespace(app=app), with_defaults=True)))"
    )
    addresses = {
        "REDIS_URL": f"unix://:{SECRET}@/nowhere/redis.socket",
        "BROKER_URL": f"unix://:{SECRET}@/nowhere/redis.socket",
        "RESULT_BACKEND": f"rediss://:{SECRET}@127.0.0.1:6379/2",
        "DATABASE_URL": f"postgres://u:{SECRET}@127.0.0.1/x",
    }
    done = subprocess.run(
        [sys.executable, "-c", answer], env=os.environ | addresses, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["task_default_queue"] == "hub" and SECRET not in done.stdout
    assert not {"BROKER_URL", "REDIS_URL", "DATABASES", "INSTALLED_APPS"} & set(shown)

"""Addresses of a Redis in the three forms that read them: ours, redis-py's and kombu's."""

import pytest

from vendors.redis_addresses import celery_url, is_one_server, parse_sentinels


def test_sentinels_are_named_with_their_master() -> None:
    found = parse_sentinels("redis+sentinel://ann:p%40ss@one:26379,two,[::1]:5/mymaster/3?sentinel_password=s")
    assert found is not None
    assert found.nodes == (("one", 26379), ("two", 26379), ("::1", 5)) and (found.master, found.database) == (
        "mymaster",
        3,
    )
    assert found.login == {"username": "ann", "password": "p@ss"} and found.sentinel_login == {"password": "s"}
    assert found.celery_url() == (
        "sentinel://ann:p%40ss@one:26379/3;sentinel://ann:p%40ss@two:26379/3;sentinel://ann:p%40ss@[::1]:5/3"
    )
    assert found.celery_options()["master_name"] == "mymaster" and found.celery_tls() is None
    assert parse_sentinels("redis://one/0") is None


def test_tls_reaches_the_master_and_the_sentinels() -> None:
    found = parse_sentinels("rediss+sentinel://one/m?ca_file=/etc/ca.pem")
    assert found is not None and found.database == 0
    assert found.tls == {"ssl": True, "ssl_ca_certs": "/etc/ca.pem"}
    assert found.celery_options()["sentinel_kwargs"] == found.tls
    assert (found.celery_tls() or {})["ssl_ca_certs"] == "/etc/ca.pem"


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://one,two", "redis+sentinel:///m", "redis+sentinel://one,,two/m", "redis+sentinel://one/m/x",
        "redis+sentinel://one/m?db=1", "redis+sentinel://one:port/m", "redis+sentinel://one:99999/m",
    ],
)  # fmt: skip
def test_what_names_no_master_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        parse_sentinels(url)


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("redis://h/0", True), ("rediss://u:p@h:1/0", True), ("unix:///run/redis.sock?db=1", True),
        ("redis://one:6379,two:6379/0", False), ("redis+cluster://h", False), ("sentinel://h/0", False),
        ("http://h", False), ("valkey://h/0", False),
    ],
)  # fmt: skip
def test_one_server_is_told_from_several(url: str, fits: bool) -> None:
    assert is_one_server(url) is fits


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("unix:///run/a%20b.sock?db=2", "redis+socket:///run/a%20b.sock?virtual_host=2"),
        ("rediss://h/0", "rediss://h/0?ssl_cert_reqs=required"),
        ("rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=none"),
        ("redis://h/0", "redis://h/0"), ("amqp://h//", "amqp://h//"),
    ],
)  # fmt: skip
def test_celery_is_told_in_its_own_form(url: str, wanted: str) -> None:
    assert celery_url(url) == wanted

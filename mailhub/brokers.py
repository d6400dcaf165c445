"""One broker's address, spelled for each library that reads it, and what kind of broker it is."""

from urllib.parse import parse_qs, quote, unquote, urlsplit


def celery_url(url: str) -> str:
    """The address of a Redis as Celery and kombu spell it: unix:///path?db=1 becomes redis+socket://..."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    db = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{quote(unquote(parts.path))}?virtual_host={db}"


def is_rabbitmq(url: str) -> bool:
    """Every address that kombu gives to py-amqp."""
    return urlsplit(url).scheme in ("amqp", "amqps", "pyamqp")

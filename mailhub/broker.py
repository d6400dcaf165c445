"""Redis as the broker: if it answers "not now", Celery and kombu see a lost connection.

They keep their process and reconnect until it works. An answer like READONLY would look to them like a caller's
mistake, which ends a worker (vendors/not_now.py has the list).

RabbitMQ over TLS: each host must have a certificate with its name. kombu's own transport checks no name.
"""

from ssl import CERT_REQUIRED
from typing import Any

from kombu import Connection, transport
from kombu.transport import pyamqp, redis
from redis.exceptions import ResponseError

from vendors import outages
from vendors.not_now import StoreRefuses, find_refusal_text
from vendors.redis_addresses import celery_url, parse_sentinels

LONGEST_PAUSE = 4.0  # seconds between two tries to reconnect; kombu's grow to 30, long after the broker is back


class PromptConnection(Connection):
    """A connection to any broker that reconnects soon after the broker has returned."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """Connect; retry after 2 seconds, then every 4."""
        return super().ensure_connection(*args, **{"interval_max": LONGEST_PAUSE, **options})


def connect_to(url: str, seconds: float | None = None, **options: Any) -> Connection:
    """Return a connection to this broker. seconds: for connecting; options: of kombu's transport."""
    more: dict[str, Any] = {} if seconds is None else {"connect_timeout": seconds}
    if sentinels := parse_sentinels(url):
        options = sentinels.celery_options() | options
        more["ssl"] = sentinels.celery_tls() or False
    return Connection(celery_url(url), transport_options=options, **more)


class _LastingWorker:
    """Of a channel: a worker that gives up its connection goes on without it.

    It tries to return the connection's messages over it. kombu has no address any more then, and its AttributeError
    would end the worker.
    """

    connection: Any

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection is None or self.connection.client is None:
            raise StoreRefuses("the connection to the broker is closed")
        params: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[misc]
        return params


class TellingChannel(_LastingWorker, redis.Channel):
    """A channel over the kind of connection that the URL asks for."""

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        params = super()._connparams(asynchronous)
        return params | {"connection_class": _telling_connection(params["connection_class"])}


class TellingSentinelChannel(_LastingWorker, redis.SentinelChannel):
    """A TellingChannel over Sentinels, whose pool brings a kind of connection of its own."""

    def _sentinel_managed_pool(self, asynchronous: bool = False) -> Any:
        pool: Any = super()._sentinel_managed_pool(asynchronous)  # type: ignore[misc]
        pool.connection_class = _telling_connection(pool.connection_class)
        return pool


class TellingTransport(redis.Transport):
    Channel = TellingChannel


class TellingSentinelTransport(redis.SentinelTransport):
    Channel = TellingSentinelChannel


class StrictTlsTransport(pyamqp.SSLTransport):
    """RabbitMQ over TLS. `ssl_ca_certs` in the URL: a file with the authorities; default: the system's."""

    def establish_connection(self) -> Any:
        """Connect to the current host of the URL's list, which must prove its name."""
        line: Any = self.client  # kombu gives its types for no connection, too
        given = line.ssl if isinstance(line.ssl, dict) else {}
        line.ssl = {
            "cert_reqs": CERT_REQUIRED,
            "ca_certs": given.get("ssl_ca_certs") or given.get("ca_certs"),
            "server_hostname": line.hostname,
        }
        return super().establish_connection()


def _telling_connection(kind: type) -> type:
    class TellingConnection(kind):  # type: ignore[misc]  # made for each kind of connection
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except ResponseError as error:
                if said := find_refusal_text(error):
                    outages.note_outage("broker", said)
                    raise StoreRefuses(said) from error
                raise

    for missing in {"host", "port"} - {name for one in kind.__mro__ for name in vars(one)}:
        setattr(TellingConnection, missing, "")  # redis-py counts errors by them, even for a unix socket
    return TellingConnection


def use_transports() -> None:
    """Use these transports for every kombu.Connection in this process."""
    for scheme, ours in (
        ("redis", TellingTransport), ("rediss", TellingTransport), ("sentinel", TellingSentinelTransport),
        ("amqps", StrictTlsTransport),
    ):  # fmt: skip
        transport.TRANSPORT_ALIASES[scheme] = f"{ours.__module__}:{ours.__qualname__}"
        transport._transport_cache.pop(scheme, None)  # type: ignore[attr-defined]

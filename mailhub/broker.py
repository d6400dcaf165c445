"""Redis as the broker: if it answers "not now", Celery and kombu see a lost connection.

They keep their process and reconnect until it works. An answer like READONLY would look to them like a caller's
mistake, which ends a worker (vendors/not_now.py has the list).
"""

from typing import Any

from kombu import Connection, transport
from kombu.transport import redis
from redis.exceptions import ResponseError

from vendors import outages
from vendors.not_now import StoreRefuses, refusal

LONGEST_PAUSE = 4.0  # seconds between two tries to reconnect; kombu's grow to 30, long after the broker is back


class PromptConnection(Connection):
    """A connection to any broker that reconnects soon after the broker has returned."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """Connect; retry after 2 seconds, then every 4."""
        return super().ensure_connection(*args, **{"interval_max": LONGEST_PAUSE, **options})


class TellingChannel(redis.Channel):
    """A channel over the kind of connection that the URL asks for."""

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection is None or self.connection.client is None:
            # A worker that gives up a connection tries to return its messages over it; kombu's error would end the
            # worker.
            raise StoreRefuses("the connection to the broker is closed")
        params: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[misc]
        return params | {"connection_class": _telling(params["connection_class"])}


class TellingTransport(redis.Transport):
    Channel = TellingChannel


def _telling(kind: type) -> type:
    class TellingConnection(kind):  # type: ignore[misc]  # made for each kind of connection
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except ResponseError as error:
                if said := refusal(error):
                    outages.note("broker", said)
                    raise StoreRefuses(said) from error
                raise

    for missing in {"host", "port"} - {name for one in kind.__mro__ for name in vars(one)}:
        setattr(TellingConnection, missing, "")  # redis-py counts errors by them, even for a unix socket
    return TellingConnection


def use() -> None:
    """Use this transport for every kombu.Connection to Redis in this process."""
    ours = f"{TellingTransport.__module__}:{TellingTransport.__qualname__}"
    for scheme in ("redis", "rediss"):
        transport.TRANSPORT_ALIASES[scheme] = ours
        transport._transport_cache.pop(scheme, None)  # type: ignore[attr-defined]

"""Redis as the broker: where it answers "not now", Celery and kombu see a connection that is lost.

They reconnect until that goes well and keep their process. An answer like READONLY is to them a mistake of the caller,
which ends a worker (vendors/not_now.py has the list).
"""

from typing import Any

from kombu import Connection, transport
from kombu.transport import redis
from redis.exceptions import ResponseError

from vendors import outages
from vendors.not_now import StoreRefuses, refusal

LONGEST_PAUSE = 4.0  # seconds between two tries to reconnect; kombu's grows to 30, so long after a broker's return


class PromptConnection(Connection):
    """A connection to any broker that a worker finds again soon after the broker has returned."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """Connect, and try again after 2 and then each 4 seconds."""
        return super().ensure_connection(*args, **{"interval_max": LONGEST_PAUSE, **options})


class TellingChannel(redis.Channel):
    """Of whichever kind of connection the URL asks for."""

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection is None or self.connection.client is None:
            # A worker that gives up a connection wants to give its messages back by it; kombu's error would end it.
            raise StoreRefuses("the connection to the broker is closed")
        params: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[misc]
        return params | {"connection_class": _telling(params["connection_class"])}


class TellingTransport(redis.Transport):
    Channel = TellingChannel


def _telling(kind: type) -> type:
    class TellingConnection(kind):
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except ResponseError as error:
                if said := refusal(error):
                    outages.note("broker", said)
                    raise StoreRefuses(said) from error
                raise

    for missing in {"host", "port"} - {name for one in kind.__mro__ for name in vars(one)}:
        setattr(TellingConnection, missing, "")  # redis-py counts errors by them, also of a unix socket
    return TellingConnection


def use() -> None:
    """Lets each kombu.Connection of this process to a Redis be of this transport."""
    ours = f"{TellingTransport.__module__}:{TellingTransport.__qualname__}"
    for scheme in ("redis", "rediss"):
        transport.TRANSPORT_ALIASES[scheme] = ours
        transport._transport_cache.pop(scheme, None)  # type: ignore[attr-defined]

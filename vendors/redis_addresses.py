"""Addresses of a Redis: of one server, or of the Sentinels that know which server is the master.

    redis+sentinel://user:password@one:26379,two:26379,three:26379/mymaster/0

User and password are those of the Redis. `rediss+sentinel` speaks TLS. In its query: `sentinel_user`,
`sentinel_password` and `ca_file`.
"""

from ssl import CERT_REQUIRED
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

SCHEMES = ("redis", "rediss", "unix")
SENTINEL = ("redis+sentinel", "rediss+sentinel")
PORT = 26379
OPTIONS = {"sentinel_user", "sentinel_password", "ca_file"}


class SentinelAddress(NamedTuple):
    """nodes: host and port of each Sentinel; master: the name under which they watch it; login: of the Redis."""

    nodes: tuple[tuple[str, int], ...]
    master: str
    database: int
    login: dict[str, str]
    sentinel_login: dict[str, str]
    tls: dict[str, Any]

    def celery_url(self) -> str:
        """Return the address in kombu's form, which has no place for the master's name."""
        user, password = (quote(self.login.get(name, ""), safe="") for name in ("username", "password"))
        login = f"{user}:{password}@" if password else ""
        hosts = (f"[{host}]" if ":" in host else host for host, _ in self.nodes)
        ports = (port for _, port in self.nodes)
        return ";".join(
            f"sentinel://{login}{host}:{port}/{self.database}" for host, port in zip(hosts, ports, strict=True)
        )

    def celery_options(self) -> dict[str, Any]:
        """Return what goes into the transport options of kombu and Celery's results beside the address."""
        return {"master_name": self.master, "sentinel_kwargs": {**self.sentinel_login, **self.tls}}

    def celery_tls(self) -> dict[str, Any] | None:
        """Return Celery's settings of TLS; None without it."""
        files = {name: value for name, value in self.tls.items() if name != "ssl"}
        return {"ssl_cert_reqs": CERT_REQUIRED, **files} if self.tls else None


def parse_sentinels(url: str) -> SentinelAddress | None:
    """Parse an address of Sentinels; None for any other address. Raises ValueError, which does not show it."""
    parts = urlsplit(url)
    if parts.scheme not in SENTINEL:
        return None
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    master, _, database = parts.path.strip("/").partition("/")
    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if not (hosts and master and (database or "0").isdecimal()) or given.keys() - OPTIONS:
        raise ValueError
    of_sentinels = {"username": given.get("sentinel_user"), "password": given.get("sentinel_password")}
    tls: dict[str, Any] = {"ssl": True} if parts.scheme == "rediss+sentinel" else {}
    if tls and "ca_file" in given:
        tls["ssl_ca_certs"] = given["ca_file"]
    return SentinelAddress(
        tuple(_parse_node(one) for one in hosts.split(",")),
        unquote(master),
        int(database or 0),
        _without_empty({"username": unquote(user), "password": unquote(password)}),
        _without_empty(of_sentinels),
        tls,
    )


def is_one_server(url: str) -> bool:
    """Return True for the address of a single server."""
    parts = urlsplit(url)
    return parts.scheme in SCHEMES and "," not in parts.netloc


def celery_url(url: str) -> str:
    """Return an address in the form of Celery and kombu: unix:///path?db=1 becomes redis+socket://..."""
    if sentinels := parse_sentinels(url):
        return sentinels.celery_url()
    parts = urlsplit(url)
    if parts.scheme == "rediss" and "ssl_cert_reqs=" not in parts.query:
        return parts._replace(query="&".join(filter(None, [parts.query, "ssl_cert_reqs=required"]))).geturl()
    if parts.scheme != "unix":
        return url
    query = parse_qs(parts.query)
    return f"redis+socket://{quote(unquote(parts.path))}?virtual_host={query.get('db', ['0'])[0]}"


def _without_empty(values: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _parse_node(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.username:
        raise ValueError
    return parts.hostname, parts.port or PORT

"""The examples of nginx and Caddy, run: what they pass on, what they add, what they keep out, when they give up."""

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.ports import free_port
from tests.waiting import DEADLINE, exit_of, wait_until

pytestmark = pytest.mark.slow("programs")

EXAMPLES = Path(__file__).parents[2] / "deploy" / "proxy"
PROGRAMS = {"nginx": shutil.which("nginx", path="/usr/sbin:/usr/bin"), "caddy": shutil.which("caddy")}
BACKENDS = {"web": 8000, "api": 8001, "flower": 5555}
HANGS = "/hangs"  # a path that is answered when the backends end
# The time limits of the examples, and one second instead of each.
TIMES = {
    "nginx": ("client_header_timeout 10s", "client_body_timeout 10s", "proxy_read_timeout 120s"),
    "caddy": ("read_header 10s", "read_body 5m", "response_header_timeout 120s"),
}


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == HANGS:
            self.server.ends.wait()  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        facts = {
            "server": self.server.name,  # type: ignore[attr-defined]
            "path": self.path,
            "headers": {name.lower(): self.headers.get_all(name) for name in self.headers},
            "bytes": len(body),
        }
        answer = json.dumps(facts).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass


class Proxy(NamedTuple):
    kind: str
    secure: int
    plain: int

    def ask(self, path: str, host: str = "mailhub.example.com", body: bytes = b"", **headers: str) -> tuple[int, Any]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = _Named(host, self.secure, context)
        try:
            connection.request("POST" if body else "GET", path, body or None, {"Host": host, **headers})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith(b"{") else text.decode()
        finally:
            connection.close()

    def connect_tls(self) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", self.secure), timeout=DEADLINE)
        return context.wrap_socket(plain, server_hostname="mailhub.example.com")

    def is_there(self) -> bool:
        try:
            return self.ask("/")[0] == 200
        except OSError:
            return False


class _Named(http.client.HTTPSConnection):
    """A connection to this machine that asks for another name, as TLS tells it."""

    def __init__(self, name: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__("127.0.0.1", port, timeout=DEADLINE, context=context)
        self._name, self._given = name, context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._given.wrap_socket(self.sock, server_hostname=self._name)


@contextmanager
def backends() -> Iterator[dict[str, int]]:
    servers = {name: ThreadingHTTPServer(("127.0.0.1", 0), Echo) for name in BACKENDS}
    ends = threading.Event()
    for name, server in servers.items():
        server.name, server.ends = name, ends  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {name: server.server_address[1] for name, server in servers.items()}
    finally:
        ends.set()
        for server in servers.values():
            server.shutdown()
            server.server_close()


def with_ports(text: str, ports: dict[str, int]) -> str:
    for name, usual in BACKENDS.items():
        assert f"127.0.0.1:{usual}" in text
        text = text.replace(f"127.0.0.1:{usual}", f"127.0.0.1:{ports[name]}")
    return text


def make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "mailhub.pem", folder / "mailhub.key"
    names = "subjectAltName=DNS:mailhub.example.com,DNS:flower.example.com"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=mailhub.example.com",
    ]
    subprocess.run([*made, "-addext", names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def write_nginx(folder: Path, ports: dict[str, int], secure: int, plain: int) -> list[str]:
    certificate, key = make_certificate(folder)
    text = with_ports((EXAMPLES / "nginx.conf").read_text(), ports)
    for usual, here in (
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{secure} ssl;"),
    ):
        assert usual in text
        text = text.replace(usual, here)
    text = text.replace("/etc/ssl/mailhub.pem", str(certificate)).replace("/etc/ssl/mailhub.key", str(key))
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log;\n"
        f"{'user root;' if os.getuid() == 0 else ''}\n"  # else its workers may not write below the folder of the tests
        f"events {{}}\nhttp {{\naccess_log off;\n{places}{text}}}\n"
    )
    return [str(PROGRAMS["nginx"]), "-e", f"{folder}/log", "-c", f"{folder}/nginx.conf"]


def write_caddy(folder: Path, ports: dict[str, int], secure: int, plain: int) -> list[str]:
    certificate, key = make_certificate(folder)
    text = with_ports((EXAMPLES / "Caddyfile").read_text(), ports)
    settings = f"{{\n\tadmin off\n\thttp_port {plain}\n\thttps_port {secure}\n\tstorage file_system {folder}\n"
    assert "\n{\n\tservers" in text
    text = text.replace("\n{\n\tservers", f"\n{settings}\tservers", 1)
    text = re.sub(r"^(\w+\.example\.com) \{", rf"\1 {{\n\ttls {certificate} {key}", text, flags=re.MULTILINE)
    (folder / "Caddyfile").write_text(text)
    return [str(PROGRAMS["caddy"]), "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"]


WRITERS = {"nginx": write_nginx, "caddy": write_caddy}


def shorten_times(kind: str, folder: Path) -> None:
    """Write one second for each time limit of the example."""
    file = folder / {"nginx": "nginx.conf", "caddy": "Caddyfile"}[kind]
    text = file.read_text()
    for limit in TIMES[kind]:
        assert limit in text
        text = text.replace(limit, f"{limit.split()[0]} 1s")
    file.write_text(text)


@contextmanager
def running_proxy(kind: str, folder: Path, is_quick: bool = False) -> Iterator[Proxy]:
    if PROGRAMS[kind] is None:
        pytest.skip(f"no {kind} on this machine")
    secure, plain = free_port(), free_port()
    with backends() as ports:
        command = WRITERS[kind](folder, ports, secure, plain)
        if is_quick:
            shorten_times(kind, folder)
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            made = Proxy(kind, secure, plain)
            log = (folder / "output").read_text
            wait_until(lambda: made.is_there() or process.poll() is not None, "it answers", every=0.1, log=log)
            assert process.poll() is None, log()
            yield made
        finally:
            process.terminate()
            exit_of(process)


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with running_proxy(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def quick_proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy whose time limits are one second each."""
    with running_proxy(request.param, tmp_path_factory.mktemp(request.param), is_quick=True) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "server"),
    [
        ("/", "web"),
        ("/login/?next=/campaigns/%3Fa=1", "web"),
        ("/unsubscribe/abc", "web"),
        ("/api/v1/messages?a=b%2Fc&d=%20e", "api"),
        ("/api/v1/reports/x/../y", "api"),
    ],
)
def test_path_and_query_come_as_they_were_asked_to_the_right_process(proxy: Proxy, path: str, server: str) -> None:
    status, asked = proxy.ask(path)
    assert (status, asked["server"], asked["path"]) == (200, server, path)


def test_the_address_is_that_of_the_client_whatever_it_says_itself(proxy: Proxy) -> None:
    lies = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http", "X-Real-Ip": "203.0.113.9"}
    for path in ("/", "/api/v1/services", "/unsubscribe/abc"):
        _, asked = proxy.ask(path, **lies)
        headers = asked["headers"]
        assert headers["x-forwarded-for"] == ["127.0.0.1"] and headers["x-forwarded-proto"] == ["https"], path
        assert headers["host"] == ["mailhub.example.com"]


def test_a_list_passes_and_what_is_larger_than_any_list_does_not(proxy: Proxy) -> None:
    status, asked = proxy.ask("/campaigns/new/", body=bytes(100_000_000))
    assert (status, asked["bytes"]) == (200, 100_000_000)
    try:
        status, _ = proxy.ask("/campaigns/new/", body=bytes(130_000_000))
    except OSError:  # it closed the connection before all was written
        status = 413
    assert status in (413, 502), "502: Caddy's word for a body that ended too early"


def test_http_leads_to_https(proxy: Proxy) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.plain, timeout=DEADLINE)
    connection.request("GET", "/login/?next=/", headers={"Host": "mailhub.example.com"})
    answer = connection.getresponse()
    assert answer.status == 308
    assert re.fullmatch(r"https://mailhub\.example\.com(:\d+)?/login/\?next=/", answer.headers["Location"])
    connection.close()


def test_flower_is_behind_it_by_its_own_name(proxy: Proxy) -> None:
    status, asked = proxy.ask("/tasks?a=b", host="flower.example.com", Authorization="Basic bm86bm8=")
    assert (status, asked["server"], asked["path"]) == (200, "flower", "/tasks?a=b")
    assert asked["headers"]["authorization"] == ["Basic bm86bm8="]


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: mailhub.example.com\r\n", id="headers"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: mailhub.example.com\r\nContent-Length: 9\r\n\r\nhalf", id="body"),
    ],
)
def test_a_client_that_stops_in_the_middle_is_cut_off(quick_proxy: Proxy, begun: bytes) -> None:
    answer = b""
    with quick_proxy.connect_tls() as client:
        client.sendall(begun)
        try:
            while more := client.recv(4096):
                answer += more
        except ConnectionError:
            pass
    assert b'"server"' not in answer, "nothing that a process of ours has answered"


def test_a_page_that_does_not_come_is_given_up(quick_proxy: Proxy) -> None:
    assert quick_proxy.ask(HANGS)[0] == 504

"""A DNS server of a test, on loopback by UDP and TCP: answers from a table, fails or is silent where it is told to."""

import contextlib
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

UDP_MOST = 512  # bytes of an answer; longer ones are asked for again by TCP
Table = dict[tuple[str, str], list[str]]


class DnsServer:
    """records: by name and type, as they stand in a zone file. `failing` names are SERVFAIL, `silent` ones nothing."""

    def __init__(self) -> None:
        self.records: Table = {}
        self.failing: set[str] = set()
        self.silent: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []  # how, name, type
        self._udp = socketserver.ThreadingUDPServer(("127.0.0.1", 0), self._handler(by_tcp=False))
        try:
            self._tcp = socketserver.ThreadingTCPServer(self._udp.server_address, self._handler(by_tcp=True))
        except OSError:
            self._udp.server_close()
            raise
        self.address: tuple[str, int] = ("127.0.0.1", self._udp.server_address[1])

    def text(self, name: str, *values: str) -> None:
        """TXT records, each in parts of at most 255 bytes."""
        self.records[name, "TXT"] = [" ".join(map(_quoted, _parts(value.encode()))) for value in values]

    def _handler(server, *, by_tcp: bool) -> type[socketserver.BaseRequestHandler]:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                if by_tcp:
                    size = struct.unpack("!H", self.request.recv(2))[0]
                    if answer := server.answer(self.request.recv(size), by_tcp=True):
                        self.request.sendall(struct.pack("!H", len(answer)) + answer)
                elif answer := server.answer(self.request[0], by_tcp=False):
                    self.request[1].sendto(answer, self.client_address)

        return Handler

    def answer(self, wire: bytes, *, by_tcp: bool) -> bytes:
        """Empty: it says nothing."""
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append(("tcp" if by_tcp else "udp", name, kind))
        if name in self.silent:
            return b""
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        if name in self.failing:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif values := self.records.get((name, kind)):
            answer.answer.append(
                dns.rrset.from_text_list(question.name, 60, dns.rdataclass.IN, question.rdtype, values)
            )
        elif not any(known == name or known.endswith(f".{name}") for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        made = answer.to_wire()
        if by_tcp or len(made) <= UDP_MOST:
            return made
        short = dns.message.make_response(query)
        short.flags |= dns.flags.TC
        return short.to_wire()

    def serve(self) -> None:
        for one in (self._udp, self._tcp):
            threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def end(self) -> None:
        for one in (self._udp, self._tcp):
            one.shutdown()
            one.server_close()


def _made() -> DnsServer:
    while True:
        with contextlib.suppress(OSError):  # the port that is free for UDP is taken for TCP
            return DnsServer()


def _parts(value: bytes) -> list[bytes]:
    return [value[at : at + 255] for at in range(0, len(value), 255)] or [b""]


def _quoted(part: bytes) -> str:
    """As a zone file has it."""
    return '"' + "".join(chr(one) if 32 <= one < 127 and chr(one) not in '"\\' else f"\\{one:03}" for one in part) + '"'


@contextmanager
def dns_server(settings: Any) -> Iterator[DnsServer]:
    """One that the product asks during the block. settings: of pytest-django."""
    server = _made()
    server.serve()
    settings.DNS_SERVERS = [server.address]
    try:
        yield server
    finally:
        server.end()

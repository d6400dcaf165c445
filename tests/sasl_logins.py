"""Whom a Postfix of the tests lets log in by AUTH PLAIN: it asks here, by Dovecot's protocol for authentication."""

import base64
import socketserver
import threading

HELLO = f"VERSION\t1\t1\nMECH\tPLAIN\tplaintext\nSPID\t1\nCUID\t1\nCOOKIE\t{'0' * 32}\nDONE\n"


class SaslLogins:
    """Knows users and their passwords. seen: who logged in."""

    def __init__(self, passwords: dict[str, str]) -> None:
        self.passwords = passwords
        self.seen: list[str] = []
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(logins) -> type[socketserver.StreamRequestHandler]:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(HELLO.encode())
                for line in self.rfile:
                    verb, number, *options = line.decode().rstrip("\n").split("\t")
                    if verb == "AUTH":
                        self.wfile.write(logins.answer(number, options).encode())

        return Handler

    def answer(self, number: str, options: list[str]) -> str:
        response = next((one.removeprefix("resp=") for one in options if one.startswith("resp=")), "")
        _, user, password = base64.b64decode(response).decode().split("\0")
        if self.passwords.get(user) != password:
            return f"FAIL\t{number}\tuser={user}\n"
        self.seen.append(user)
        return f"OK\t{number}\tuser={user}\n"

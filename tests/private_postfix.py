"""A Postfix of one test file, where it is installed and we may start it: on loopback, delivers to files of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from sandbox.vendor.server import hold_port
from tests.sasl_logins import SaslLogins
from tests.waiting import DEADLINE, wait_until

PROGRAM = shutil.which("postfix", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")
OWNER = "postfix"
ADDED = ("return-path:", "x-original-to:", "delivered-to:", "received:", " ", "\t")

MAIN = """
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
myhostname = relay.example
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
alias_maps =
alias_database =
local_recipient_maps =
default_transport = discard
relay_transport = discard
transport_maps = texthash:{folder}/transports
virtual_mailbox_domains = example.org, example.com
virtual_mailbox_base = {folder}/mail
virtual_mailbox_maps = regexp:{folder}/mailboxes
virtual_mailbox_limit = 0
virtual_minimum_uid = 1
virtual_uid_maps = static:{{{uid}}}
virtual_gid_maps = static:{{{gid}}}
message_size_limit = 20000000
smtputf8_enable = yes
smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination
smtpd_recipient_restrictions = check_recipient_access regexp:{folder}/recipients
body_checks = regexp:{folder}/bodies
smtpd_sasl_type = dovecot
smtpd_sasl_path = inet:127.0.0.1:{logins}
smtpd_tls_auth_only = yes
smtpd_tls_security_level = may
smtpd_tls_chain_files = {certificate}
smtpd_tls_session_cache_database =
"""

MASTER = """
{plain} inet n - n - - smtpd
{implicit} inet n - n - - smtpd -o smtpd_tls_wrappermode=yes
{foreign} inet n - n - - smtpd -o smtpd_relay_restrictions=reject_unauth_destination
{login} inet n - n - - smtpd -o smtpd_sasl_auth_enable=yes
  -o smtpd_relay_restrictions=permit_sasl_authenticated,reject
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
lmtp unix - - n - - lmtp
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
"""


# Tables of Postfix, each a file: known recipients, answers to recipients, accepted bodies.
MAILBOXES = "!/^nobody@/ box/"
RECIPIENTS = """
/^full@/ 452 4.2.2 Mailbox full
/^closed@/ 550 5.2.1 Mailbox disabled
/^listed@/ 550 5.7.1 Service unavailable, client host blocked by a list
/^forged@/ 550 5.7.26 Unauthenticated mail is not accepted due to the domain's DMARC policy
/^quota@/ 550 5.4.5 Daily sending limit exceeded
"""
BODIES = "/^VIRUS/ REJECT 5.7.1 it looks like a virus"


def why_not() -> str:
    """Why there is none here; empty if there is."""
    if not PROGRAM:
        return "Postfix is not installed"
    return "" if os.geteuid() == 0 else "Postfix is started by root alone"


class PrivatePostfix:
    """Starts immediately. `certificate`: a file with key and certificate, for STARTTLS and TLS from the first byte.

    Ports: `plain`, with STARTTLS on request; `implicit`; `foreign`, which treats us as a foreign client; `login`, for
    clients that log in, with TLS (tests/sasl_logins.py).
    """

    PORTS = ("plain", "implicit", "foreign", "login")

    def __init__(self, certificate: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mailhub-postfix-"))
        self.folder.chmod(0o755)
        owner = pwd.getpwnam(OWNER)
        for name in ("queue", "data", "mail"):
            (self.folder / name).mkdir()
        for name in ("data", "mail"):
            os.chown(self.folder / name, owner.pw_uid, owner.pw_gid)
        key = self.folder / "relay.pem"
        key.write_bytes(certificate.read_bytes())
        key.chmod(0o600)
        self._held = [hold_port("127.0.0.1", 0) for _ in self.PORTS]  # nobody else is given them
        self.plain, self.implicit, self.foreign, self.login = (held.getsockname()[1] for held in self._held)
        self.logins = SaslLogins({"velma": "s3cret"})
        values = {"folder": self.folder, "certificate": key, "uid": owner.pw_uid, "gid": owner.pw_gid}
        (self.folder / "main.cf").write_text(MAIN.format(**values, logins=self.logins.port))
        for name, table in {"mailboxes": MAILBOXES, "recipients": RECIPIENTS, "bodies": BODIES}.items():
            (self.folder / name).write_text(f"{table}\n")
        (self.folder / "transports").write_text("")
        ports = {name: getattr(self, name) for name in self.PORTS}
        (self.folder / "master.cf").write_text(MASTER.format(**{n: f"127.0.0.1:{port}" for n, port in ports.items()}))
        self._command("start")
        wait_until(lambda: self._command("status", check=False) == 0, "Postfix runs")

    def _command(self, *args: str, check: bool = True) -> int:
        assert PROGRAM
        done = subprocess.run(
            [PROGRAM, "-c", str(self.folder), *args], capture_output=True, text=True, timeout=DEADLINE
        )
        assert not check or done.returncode == 0, f"{done.stdout}{done.stderr}{self.log()}"
        return done.returncode

    def everybody_has_space(self) -> None:
        """From now on accept mail for each known mailbox."""
        (self.folder / "recipients").write_text("")
        self._command("reload")

    def hand_on(self, port: int, *domains: str) -> None:
        """From now on mail for these domains goes by LMTP to this port."""
        (self.folder / "transports").write_text("".join(f"{one} lmtp:inet:127.0.0.1:{port}\n" for one in domains))
        self._command("reload")

    def log(self) -> str:
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    def delivered(self) -> dict[str, bytes]:
        """What arrived since it was asked last, by Message-ID, without the lines that Postfix puts before it."""
        found = {}
        for path in (self.folder / "mail" / "box" / "new").glob("*"):
            lines = path.read_bytes().split(b"\n")
            while lines[0].decode("utf-8").lower().startswith(ADDED):
                del lines[0]
            name = next(line for line in lines if line.startswith(b"Message-ID: <"))
            found[name[13:].partition(b"@")[0].decode()] = b"\n".join(lines)
            path.unlink()
        return found

    def end(self) -> None:
        self._command("stop", check=False)
        wait_until(lambda: self._command("status", check=False) != 0, "Postfix has ended")
        for held in self._held:
            held.close()
        self.logins.end()
        shutil.rmtree(self.folder, ignore_errors=True)

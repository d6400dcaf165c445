"""Units for systemd, made from the Procfile: a service for each process, one target, and what makes user and folders.

Each service runs `mailhub run NAME`, so a command changes in the Procfile alone. SIGTERM goes to the main process only
(KillMode=mixed), because Celery's pool would drop its calls if it got the signal too.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

# The longest call of a description (300 s) with its files (10 s) and its wind-up, and some more.
STOP_SECONDS = 330
TARGET = "mailhub.target"
NUMBERED = "worker-vendors"  # runs several times on a machine
ABOUT = {
    "web": "pages",
    "api": "HTTP API",
    "beat": "periodic tasks",
    "worker-hub": "worker of beat's tasks",
    "worker-vendors": "senders",
    "worker-webhooks": "worker of webhooks",
    "flower": "Flower",
    "bounces": "receiver of bounces",
}
# What a process may do: read the system, write its home, speak over IP and to sockets. Nothing of it needs root.
HARDENING = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
PrivateDevices=yes
PrivateTmp=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
UMask=0077
LimitNOFILE=65536
"""


@dataclass(frozen=True)
class UnitPlace:
    """Where an installation is. `program`: the command mailhub. `senders`: processes of worker-vendors."""

    program: str
    home: str = "/var/lib/mailhub"
    environment: str = "/etc/mailhub/environment"
    user: str = "mailhub"
    senders: int = 2

    @property
    def writable_lines(self) -> str:
        """Return the lines that let a service write its home."""
        if PurePosixPath(self.home).parent == PurePosixPath("/var/lib"):
            return f"StateDirectory={PurePosixPath(self.home).name}\nStateDirectoryMode=0700\n"
        return f"ReadWritePaths={self.home}\n"


def make_units(processes: dict[str, str], place: UnitPlace) -> dict[str, str]:
    """Return the texts of all files by name. `processes`: those of the Procfile."""
    units = {_file_name(name): _make_service(name, place) for name in processes}
    wanted = " ".join(unit for name in processes for unit in _unit_instances(name, place))
    return {
        TARGET: f"[Unit]\nDescription=mailhub\nWants={wanted}\n\n[Install]\nWantedBy=multi-user.target\n",
        **units,
        "mailhub-migrate.service": _make_migration(place),
        "mailhub.tmpfiles.conf": (
            f"d {PurePosixPath(place.environment).parent} 0750 root {place.user} -\n"
            f"z {place.environment} 0640 root {place.user} -\n"
            f"d {place.home} 0700 {place.user} {place.user} -\n"
        ),
        "mailhub.sysusers.conf": f'u {place.user} - "mailhub" {place.home}\n',
    }


def _file_name(name: str) -> str:
    return f"mailhub-{name}{'@' if name == NUMBERED else ''}.service"


def _unit_instances(name: str, place: UnitPlace) -> list[str]:
    if name != NUMBERED:
        return [_file_name(name)]
    return [f"mailhub-{name}@{number}.service" for number in range(1, place.senders + 1)]


def _make_service(name: str, place: UnitPlace) -> str:
    number = "Environment=PROCESS_NUMBER=%i\n" if name == NUMBERED else ""
    return (
        f"[Unit]\nDescription=mailhub: {ABOUT.get(name, name)}{' %i' if number else ''}\nPartOf={TARGET}\n"
        "Wants=network-online.target\n"
        "After=network-online.target postgresql.service redis-server.service valkey-server.service\n"
        "StartLimitIntervalSec=0\n\n"
        f"[Service]\nType=exec\n{_common_lines(place)}{number}"
        f"ExecStart={place.program} run {name}\n"
        "Restart=always\nRestartSec=2\n"
        f"KillMode=mixed\nTimeoutStopSec={STOP_SECONDS}\n"
        f"{HARDENING}\n[Install]\nWantedBy={TARGET}\n"
    )


def _make_migration(place: UnitPlace) -> str:
    return (
        "[Unit]\nDescription=mailhub: tables of this version\n"
        "After=network-online.target postgresql.service\n\n"
        f"[Service]\nType=oneshot\n{_common_lines(place)}"
        f"ExecStart={place.program} migrate --wait\nTimeoutStartSec=infinity\n{HARDENING}"
    )


def _common_lines(place: UnitPlace) -> str:
    return (
        f"User={place.user}\nGroup={place.user}\nEnvironment=PYTHONUNBUFFERED=1 MAILHUB_HOME={place.home}\n"
        f"EnvironmentFile={place.environment}\n{place.writable_lines}"
    )

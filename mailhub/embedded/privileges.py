"""PostgreSQL refuses to run as root. Root starts the servers as the home's owner, or as somebody harmless."""

import os
import pwd
import subprocess
from pathlib import Path

from mailhub.embedded.errors import EmbeddedError

# Another user id inside, still root's files outside: nothing is added to the system or changes hands.
OWN_NAMESPACE = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


def demoted(home: Path, program: Path) -> list[str]:
    """The words to put before the program so that it does not run as root; none for an ordinary user.

    Where namespaces are forbidden (many containers) the home changes hands to nobody.
    """
    if os.geteuid() != 0:
        return []
    owner = home.stat()
    if owner.st_uid == 0:
        if _runs(OWN_NAMESPACE, program):
            return OWN_NAMESPACE
        nobody = pwd.getpwnam("nobody")
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        owner = home.stat()
    for prefix in _as_user(owner.st_uid, owner.st_gid):
        if _runs(prefix, program):
            return prefix
    raise EmbeddedError(
        f"Root cannot run {program} as another user here: run as an ordinary user, or set DATABASE_URL and REDIS_URL"
    )


def _as_user(uid: int, gid: int) -> list[list[str]]:
    plain = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    # With this one power the user reaches programs and data below folders closed to it, such as /root.
    return [[*plain, "--inh-caps=+dac_override", "--ambient-caps=+dac_override"], plain]


def _runs(prefix: list[str], program: Path) -> bool:
    try:
        return subprocess.run([*prefix, program, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False

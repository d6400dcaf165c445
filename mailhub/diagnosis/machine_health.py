"""Checks of this machine and of the settings of this installation: disks, files, limits, HTTPS, fonts, identities."""

import os
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.core.checks import run_checks
from django.db import connection

from campaigns.models import Identity
from campaigns.senders.quotas import admission
from campaigns.texts.signs import drawing_adapter
from mailhub import checks, command
from mailhub.diagnosis.postgres_health import data_folder
from mailhub.diagnosis.verdicts import HealthVerdict, VerdictLevel, all_well, error_of, judge_message, warning_of
from vendors.models import Vendor

LITTLE_PART, LITTLE_BYTES = 0.05, 2**30  # free: below both it is a warning
LEAST_BYTES = 100 * 2**20
FILES_LEAST, FILES_PLENTY = 1024, 8192
SHORTEST_KEY = 50  # characters; as Django's own check has it
SECRETS = ("secret_key", "flower_password")  # files of the home
NAMED = 3  # identities named in a sentence


def look_at_versions() -> Iterator[HealthVerdict]:
    """Check the versions of Python and of the program."""
    found = [*checks.python_version(), *checks.json_only()]
    yield from map(judge_message, found)
    if not found:
        yield all_well(f"mailhub {command.program_version()} on Python {sys.version.split()[0]}")


def judge_space(place: str, free: int, total: int) -> HealthVerdict:
    """Return the verdict about the free space of a file system, in bytes."""
    megabytes = round(free / 2**20)
    if free >= min(LITTLE_BYTES, LITTLE_PART * total) and free >= LEAST_BYTES:
        return all_well(f"{place} has {megabytes} MB free")
    return HealthVerdict(
        VerdictLevel.ERROR if free < LEAST_BYTES else VerdictLevel.WARNING,
        f"{place} has only {megabytes} MB free",
        "Free space there, or give it a larger disk",
    )


def look_at_disks() -> Iterator[HealthVerdict]:
    """Check the space of the home and of temporary files, and that they may be written."""
    for place in dict.fromkeys([_nearest_existing(settings.MAILHUB_HOME), Path(tempfile.gettempdir())]):
        if not os.access(place, os.W_OK | os.X_OK):
            yield warning_of(
                f"{place} cannot be written",
                "Give this user the folder, or set MAILHUB_HOME or TMPDIR to another one",
            )
        usage = shutil.disk_usage(place)
        yield judge_space(str(place), usage.free, usage.total)


def look_at_postgres_disk() -> Iterator[HealthVerdict]:
    """Check the space of PostgreSQL's data. Only its own machine knows that, and a role that may read the setting."""
    folder = data_folder()
    host = str(connection.settings_dict["OPTIONS"].get("host") or connection.settings_dict["HOST"] or "/")
    if folder is None or not host.startswith("/") or not os.access(folder, os.F_OK):
        yield all_well("the space of PostgreSQL's data is not seen from here: watch it there")
        return
    usage = shutil.disk_usage(folder)
    yield judge_space(folder, usage.free, usage.total)


def _nearest_existing(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def look_at_descriptors() -> Iterator[HealthVerdict]:
    """Check how many files a process may open: each call in flight and each request is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # processes raise the soft limit up to it
    if most == resource.RLIM_INFINITY or most >= FILES_PLENTY:
        yield all_well("a process may open enough files")
        return
    yield HealthVerdict(
        VerdictLevel.ERROR if most < FILES_LEAST else VerdictLevel.WARNING,
        f"a process may open only {most} files",
        f"Raise the hard limit (ulimit -Hn, LimitNOFILE) to {FILES_PLENTY}",
    )


def look_at_keys() -> Iterator[HealthVerdict]:
    """Check the secret key, and who may read the files with keys."""
    home, wrong = Path(settings.MAILHUB_HOME), False
    for path, forbidden in ((home, stat.S_IWGRP | stat.S_IWOTH), *((home / name, 0o077) for name in SECRETS)):
        if path.exists() and (mode := stat.S_IMODE(path.stat().st_mode)) & forbidden:
            wrong = True
            yield error_of(
                f"others may open {path}: its mode is {mode:o}",
                f"Say chmod {700 if path == home else 600} {path}; rotate the keys if somebody may have read them",
            )  # fmt: skip
    if len(settings.SECRET_KEY) < SHORTEST_KEY:
        wrong = True
        yield warning_of(
            f"SECRET_KEY is shorter than {SHORTEST_KEY} characters",
            "Rotate the keys: docs/how-to/rotate-keys.md",
        )
    if not wrong:
        yield all_well("nobody else may read the keys")


def look_at_https() -> Iterator[HealthVerdict]:
    """Check that pages and links go by HTTPS."""
    found = []
    if settings.DEBUG:
        found.append(
            error_of(
                "DEBUG=1 shows settings and code to every visitor",
                "Take it out of the environment",
            )
        )
    if not settings.SECURE_SSL_REDIRECT:
        found.append(
            warning_of(
                "pages and log-ins are served without HTTPS",
                "Set HTTPS=1 behind a proxy: docs/how-to/run-behind-a-proxy.md",
            )
        )
    if not settings.PUBLIC_URL.startswith("https://"):
        found.append(
            warning_of(
                f"PUBLIC_URL is {settings.PUBLIC_URL!r}",
                "Set it to https://..., or bulk mail has no safe unsubscribe links",
            )
        )
    if not found:
        found = [judge_message(one) for one in run_checks(tags=["security"], include_deployment_checks=True)]
    yield from found or [all_well("pages and links go by HTTPS")]


def look_at_identities() -> Iterator[HealthVerdict]:
    """Check that identities sign, and that their bounces come somewhere. The DNS is asked by `doctor` apart."""
    yield from map(judge_message, checks.bounces_come_somewhere())
    there = Identity.objects.filter(channel="email", enabled=True)
    unsigned = there.filter(dkim_selector="").select_related("sponsor")
    names = [str(one) for one in unsigned[: NAMED + 1]]
    if names:
        listed = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        yield warning_of(
            f"mailhub has no DKIM key for {listed}",
            "Say manage.py identity dkim, or let the relay sign: manage.py doctor --identity tells more",
        )
    else:
        yield all_well("all e-mail identities have a DKIM key")


def look_at_quotas() -> Iterator[HealthVerdict]:
    """Find nearly used quotas."""
    found = admission.find_warned()
    for use in found:
        yield warning_of(use.sentence, "What goes above it is refused or held: manage.py quota set raises it")
    if not found:
        yield all_well("no quota is nearly used")


def look_at_fonts() -> Iterator[HealthVerdict]:
    """Report the scripts that letters printed here can show, and those without a font."""
    names = Vendor.objects.filter(channel=Vendor.Channel.PRINT).values_list("adapter", flat=True).distinct()
    for kind in {kind for name in names if (kind := drawing_adapter(name))}:
        there, lacking = kind.scripts()
        if lacking:
            yield warning_of(
                f"print shows {', '.join(there) or 'nothing'}; no installed font has {', '.join(lacking)}",
                "Install a font that has them",
            )  # fmt: skip
        elif there:
            yield all_well("print shows all common scripts")

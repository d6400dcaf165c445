"""The pages' files (CSS, scripts), compressed and under names that change with their content.

The web server collects them at its start, once for each version, so nobody has to run `collectstatic`. If STATIC_ROOT
is set, somebody else collects them, or packages serve them under their plain names.
"""

import fcntl
import hashlib
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.files.storage import FileSystemStorage
from django.core.management import call_command
from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from whitenoise.compress import Compressor
from whitenoise.storage import CompressedManifestStaticFilesStorage

from campaigns.doors.front.problems import API
from vendors import alarms

log = logging.getLogger(__name__)

KEPT = 2  # versions: processes still read the old one while it is replaced


class HashedStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # a package without types
    """Names with a hash if the files were collected, else plain names."""

    manifest_strict = False
    keep_only_hashed_files = True

    def create_compressor(self, **options: Any) -> Compressor:
        return Compressor(use_brotli=False, **options)  # brotli saves a tenth of the bytes but takes half a minute

    def url(self, name: str | None, force: bool = False) -> str:
        return super().url(name, force) if name in self.hashed_files else FileSystemStorage.url(self, name)


class CompressedPages(GZipMiddleware):
    """Compresses pages; Django adds random bytes against BREACH. Answers of the API stay uncompressed."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response if request.path.startswith(API) else super().process_response(request, response)


def collect_static() -> None:
    """Set STATIC_ROOT to a folder of all files. Raises nothing; without it pages use plain names."""
    home = settings.STATIC_FOLDER
    if home != settings.STATIC_ROOT:
        return
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (home / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # web and API start together
            folder = home / _version_of_files()
            if not folder.exists():
                _collect_into(folder)
    except OSError as why:
        alarms.FILES_UNCOMPRESSED.log(log, why)
        return
    settings.STATIC_ROOT = folder


def _collect_into(folder: Path) -> None:
    """Collect completely or not at all, wherever it is killed; delete old versions."""
    made = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    settings.STATIC_ROOT = made
    try:
        call_command("collectstatic", interactive=False, verbosity=0)
        made.rename(folder)
    finally:
        settings.STATIC_ROOT = folder.parent
    versions = sorted((one for one in folder.parent.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime)
    for old in versions[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _version_of_files() -> str:
    """Return a name for the current state of all files."""
    return hashlib.blake2b("\n".join(sorted(_describe_files())).encode(), digest_size=8).hexdigest()


def _describe_files() -> Iterator[str]:
    for finder in get_finders():
        for path, storage in finder.list([]):
            about = Path(storage.path(path)).stat()
            yield f"{path} {about.st_size} {about.st_mtime_ns}"

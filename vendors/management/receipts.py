"""`manage.py vendor receipts`: the secrets with which a vendor signs its delivery reports."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, OutputWrapper
from django.db import transaction
from django.utils import timezone

from vendors import adapters, report_keys
from vendors.management import arguments
from vendors.management.facts import log_changed, vendor_facts
from vendors.management.output import write_result
from vendors.models import Credential
from vendors.said import Said, gettext_noop


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("slug")
    parser.add_argument("--secret-file", metavar="FILE", help="the vendor's own secret; - is the input")
    parser.add_argument("--credential", metavar="NAME", help="of reports of this account alone")
    parser.add_argument("--off", action="store_true", help="accept no delivery reports of it any more")


NOT_TAKEN = (
    gettext_noop("receipts are not taken any more"),
    gettext_noop("receipts of %(login)s are not taken any more"),
)
NEW_SECRET = gettext_noop("a new secret for receipts"), gettext_noop("a new secret for receipts of %(login)s")


def _receipts_sentence(forms: tuple[str, str], login: Credential | None) -> Said:
    """Return the sentence about a vendor's reports, or about those of one credential."""
    return Said(forms[1], login=login.name) if login else Said(forms[0])


def run_receipts(out: OutputWrapper, slug: str, options: Mapping[str, Any]) -> None:
    """Store a secret, create one, or revoke them."""
    row = arguments.find_vendor(slug)
    login = arguments.find_credential(row, options["credential"]) if options["credential"] else None
    if options["off"]:
        with transaction.atomic():
            if gone := report_keys.revoke_keys(row, login):
                log_changed(row, _receipts_sentence(NOT_TAKEN, login))
        result = _receipts_sentence(NOT_TAKEN, login) if gone else "there was no secret"
        row.refresh_from_db()
        write_result(out, f"{slug}: {result}", vendor_facts(row), options["json"])
        return
    if not adapters.load(row.adapter).sends_reports(row.settings):
        raise CommandError(f"{slug}: as it is set up it sends no receipts; see the setting receipts of its adapter")
    address = f"{settings.PUBLIC_URL}/api/v1/receipts/{slug}"
    facts: dict[str, Any] = {"slug": slug, "address": address}
    if options["secret_file"]:
        given = arguments.one_secret(options["secret_file"])
        try:
            with transaction.atomic():
                report_keys.enter_key(row, given, timezone.now(), login)
                log_changed(row, _receipts_sentence(NEW_SECRET, login))
        except ValueError as error:
            raise CommandError(f"{slug}: the secret is not stored: {error}") from None
        note = f"Its secret is stored. It reports to {address}; an older secret ends in a day."
        write_result(out, note, facts, options["json"])
        return
    with transaction.atomic():
        secret = report_keys.rotate_key(row, timezone.now(), login)
        log_changed(row, _receipts_sentence(NEW_SECRET, login))
    note = f"This is shown once. The vendor signs with it what it posts to {address}; an older one ends in a day."
    write_result(out, f"{secret}\n{note}", facts | {"secret": secret}, options["json"])

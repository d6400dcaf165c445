"""Changes to a sponsor's sender identities and topics: recorded, and refused on a stale page."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.contrib.admin.models import ADDITION, DELETION
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone
from django.utils.translation import gettext as _

from campaigns.models import Identity, Topic
from campaigns.senders import entitlements
from vendors import history
from vendors.adapters import dkim
from vendors.history import Actor
from vendors.said import Said, gettext_noop

FIELDS = {
    "email": ("from_name", "from_address", "reply_to", "return_path", "verp", "default"),
    "sms": ("sender_id", "numbers", "stop_texts", "start_texts", "help_texts", "help_answer", "default"),
}


def version_of_sender(row: Identity) -> str:
    """Return a text that changes with the fields that pages edit."""
    values = [getattr(row, name) for name in FIELDS[row.channel]]
    return hashlib.blake2b(json.dumps(values).encode(), digest_size=6).hexdigest()


def has_default(sponsor_id: int | None, channel: str) -> bool:
    """Return True if this sponsor has a default identity for the channel, for campaigns that name none."""
    return Identity.objects.filter(sponsor=sponsor_id, channel=channel, default=True).exists()


@transaction.atomic
def add_identity(row: Identity, by: Actor) -> bool:
    """Store a new identity. False: its sponsor has one with this name, and nothing is stored. Raises ValidationError.

    The first identity of a sponsor and channel is the default; a later one replaces it if marked as default.
    """
    entitlements.one_change()
    if Identity.objects.filter(sponsor=row.sponsor, name=row.name).exists():
        return False
    row.full_clean(validate_unique=False, validate_constraints=False)
    row.default = row.default or not has_default(row.sponsor_id, row.channel)
    if row.default:
        entitlements.free_default(row.sponsor, row.channel)
    row.save()
    history.record_changes(by, Identity, [(row.pk, Said(gettext_noop("added")))], flag=ADDITION)
    return True


@transaction.atomic
def change_identity(pk: int, values: Mapping[str, Any], by: Actor, seen: str | None = None) -> bool:
    """Store these field values. False: nothing changes. seen: the `version_of_sender` that a page has shown.

    A new default replaces the previous one. Raises ValidationError; nothing is stored then.
    """
    entitlements.one_change()
    row = Identity.objects.select_related("sponsor").get(pk=pk)
    before, was = {name: getattr(row, name) for name in values}, version_of_sender(row)
    for name, value in values.items():
        setattr(row, name, value)
    row.full_clean(validate_unique=False, validate_constraints=False)
    changed = {name: getattr(row, name) for name in values if getattr(row, name) != before[name]}
    if not changed:
        return False
    if seen not in (None, was):
        raise ValidationError(_("Somebody else has changed it since this page was made. Look at it and do it again."))
    if changed.get("default"):
        entitlements.free_default(row.sponsor, row.channel)
    row.save(update_fields=list(changed))
    history.record_changes(by, Identity, [(row.pk, history.changes_sentence(before, changed))])
    return True


@transaction.atomic
def sign_mails(pk: int, selector: str, by: Actor) -> bool:
    """Sign the identity's mails with a new key under this selector. False: it has it already. Raises ValidationError.

    Each selector has a key of its own: receivers look up in the DNS the selector a mail names.
    """
    entitlements.one_change()
    row = Identity.objects.get(pk=pk)
    if row.dkim_selector == selector:
        return False
    domain = row.from_address.rpartition("@")[2]
    key = {"private_key": dkim.new_private_key()}
    return change_identity(pk, {"dkim_domain": domain, "dkim_selector": selector, "secret": key}, by)


def sign_no_more(pk: int, by: Actor) -> bool:
    """Delete the key of the identity's mails. False: it has none."""
    return change_identity(pk, {"dkim_domain": "", "dkim_selector": "", "secret": {}}, by)


@transaction.atomic
def rename_topic(pk: int, title: str, by: Actor) -> bool:
    """Change the title, which recipients read from now on. False: it has that title. Raises ValidationError."""
    row = Topic.objects.select_for_update().get(pk=pk)
    was, row.title = row.title, title
    row.full_clean(validate_unique=False, validate_constraints=False)
    if row.title == was:
        return False
    row.save(update_fields=["title"])
    history.record_changes(by, Topic, [(row.pk, history.change_sentence("title", was, row.title))])
    return True


@transaction.atomic
def archive_topic(pk: int, archived: bool, by: Actor) -> bool:
    """Archive a topic, so that no new campaign may name it, or restore it. False: nothing to change."""
    at = timezone.now() if archived else None
    if not Topic.objects.filter(pk=pk, archived_at__isnull=archived).update(archived_at=at):
        return False
    history.record_changes(by, Topic, [(pk, Said(gettext_noop("archived") if archived else gettext_noop("restored")))])
    return True


def remove_topic(row: Topic, by: Actor) -> bool:
    """Remove an unused topic. False: campaigns name it, or somebody has unsubscribed from it."""
    try:
        with transaction.atomic():
            history.record_changes(
                by, Topic, [(row.pk, Said(gettext_noop("removed: %(name)s"), name=str(row)))], flag=DELETION
            )
            row.delete()
    except ProtectedError:
        return False
    return True

"""Saves what pages change in a draft, under the revision of the part they show, and deletes old drafts.

A save of an older revision is refused, unless it repeats the stored values.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from hashlib import file_digest
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from campaigns.lists.drafts import blocks
from campaigns.lists.intake import BadInput
from campaigns.lists.intake import files as file_storage
from campaigns.lists.intake.files import CampaignFiles, NewFile
from campaigns.models import Draft, DraftBlock, DraftFile, Sponsor
from campaigns.texts.parts import IMAGE
from vendors.adapters.base import Attachment
from vendors.said import Said

MESSAGE, LIST, WHEN = "message", "list", "when"  # the parts, each with a revision
MOST_DRAFTS = 500  # unsent drafts of a sponsor
MOST_LISTS = 20  # largest lists that fit into a sponsor's drafts together
UNUSED = timedelta(days=30)
SENT = timedelta(days=30)  # how long rows left out of a list can be downloaded
ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtext('campaigns_draft'), %s)"


NOTHING_ELSE = Q()


class Stale(Exception):
    """Another window has changed this part. draft: its current state."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(f"draft {draft.pk} has changed")
        self.draft = draft


class Closed(Exception):
    """The draft is being sent, or has been. draft: its current state."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(f"draft {draft.pk} is sent")
        self.draft = draft


def load_draft(draft_id: int, sponsors: Any = None) -> Draft:
    """Return the draft with everything that pages show. Raises Draft.DoesNotExist.

    sponsors: as campaigns.sponsors_of.
    """
    rows = Draft.objects.of_sponsors(sponsors).select_related(
        "sponsor", "credential__vendor", "route", "identity", "topic", "campaign", "template_version__template"
    )
    found: Draft = rows.defer("credential__secret", "identity__secret").get(pk=draft_id)
    return found


def unsent_drafts(sponsors: Any) -> "QuerySet[Draft]":
    """Return drafts whose sending failed before a campaign was made, newest first. sponsors: as in look."""
    rows = Draft.objects.of_sponsors(sponsors).filter(open_drafts_condition(), failure__gt="")
    return rows.only("name", "failure", "failure_said").order_by("-pk")


def create_draft(
    sponsor: Sponsor, key: uuid.UUID, user: Any, values: Mapping[str, Any], files: Sequence[DraftFile] = ()
) -> Draft:
    """Create a draft with this message; the same key returns the same draft.

    Raises BadInput if the sponsor has too many.
    """
    with transaction.atomic():
        _one_at_a_time(sponsor.pk)
        known = Draft.objects.filter(key=key).first()
        if known is not None and known.sponsor_id != sponsor.pk:
            raise BadInput(Said("this form has made a draft of another sponsor: open a new one"))
        if known is None:
            if Draft.objects.filter(sponsor=sponsor, campaign=None).count() >= MOST_DRAFTS:
                raise BadInput(
                    Said(
                        "%(sponsor)s has %(most)s drafts: delete some that nobody needs",
                        sponsor=sponsor.name,
                        most=MOST_DRAFTS,
                    )
                )
            known = Draft.objects.create(sponsor=sponsor, key=key, created_by=user, **values)
            for one in files:
                one.draft = known
            DraftFile.objects.bulk_create(files)
    return load_draft(known.pk)


def _one_at_a_time(sponsor_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(ONE_AT_A_TIME, [sponsor_id])


def open_drafts_condition() -> Q:
    """Return the condition for drafts that can be changed."""
    return Q(campaign=None) & ~Q(busy=Draft.SENDING)


def save(draft: Draft, part: str, seen: str, values: Mapping[str, Any], only: Q = NOTHING_ELSE) -> Draft:
    """Store values of a part. seen: the page's Draft.seen. only: a further condition. Raises Stale, Closed."""
    now = timezone.now()
    mine = Draft.objects.filter(
        open_drafts_condition(), only, pk=draft.pk, **{f"{part}_revision": seen_revision(seen, part)}
    )
    sets = {**values, f"{part}_revision": F(f"{part}_revision") + 1, "updated_at": now}
    if mine.update(**sets):
        return load_draft(draft.pk)
    return _check_if_same(load_draft(draft.pk), values)


def _check_if_same(stored: Draft, values: Mapping[str, Any]) -> Draft:
    """Return the draft if it has these values already. Raises Stale, Closed."""
    if stored.campaign_id or stored.busy == Draft.SENDING:
        raise Closed(stored)
    if any(getattr(stored, name) != value for name, value in values.items()):
        raise Stale(stored)
    return stored


def leave_out(draft: Draft, seen: str, total: int) -> Draft:
    """Record the user's agreement to leave out `total` bad rows.

    Raises Stale, Closed, or BadInput if the number has changed.
    """
    if draft.found is None or draft.found["total"] != total:
        raise BadInput(Said("the list was checked once more since: look at the number of bad rows again"))
    return save(draft, LIST, seen, {"leave_out": True}, Q(facts__total=total))


def seen_revision(seen: str, part: str) -> int:
    """Return the revision of a part in a page's Draft.seen; 0, which no part has, if it is malformed."""
    numbers = seen.split(".")
    try:
        return int(numbers[(MESSAGE, LIST, WHEN).index(part)])
    except (ValueError, IndexError):
        return 0


def upload_list(draft: Draft, seen: str, name: str, file: Any, size: int) -> Draft:
    """Store a list in place of the one before. Raises Stale, Closed, and BadInput if it is empty or too large."""
    if not size:
        raise BadInput(Said("the file is empty"))
    if size > settings.LIST_BYTES:
        raise BadInput(Said("the file has %(size)s bytes; %(most)s are the most", size=size, most=settings.LIST_BYTES))
    file.seek(0)
    values: dict[str, Any] = {"list_name": name[-200:], "list_sha256": file_digest(file, "sha256").hexdigest()}
    with transaction.atomic():
        _one_at_a_time(draft.sponsor_id)
        others = Draft.objects.filter(sponsor=draft.sponsor_id, campaign=None).exclude(pk=draft.pk)
        if (others.aggregate(sum=Sum("list_bytes"))["sum"] or 0) + size > MOST_LISTS * settings.LIST_BYTES:
            raise BadInput(
                Said(
                    "the lists of %(sponsor)s's drafts are too large together: delete some drafts",
                    sponsor=draft.sponsor.name,
                )
            )
        was = load_draft(draft.pk)
        if seen_revision(seen, LIST) != was.list_revision:
            return _check_if_same(was, values)
        version = was.list_version + 1
        sets = {"list_bytes": size, "list_version": version, "columns": {}, "leave_out": False, "facts": None}
        saved = save(was, LIST, seen, values | sets)
        file.seek(0)
        blocks.add_blocks(draft.pk, DraftBlock.LIST, version, blocks.blocks_of_file(file))
        blocks.delete_others(draft.pk, [DraftBlock.LIST], version)
    return saved


def attach_files(draft: Draft, new: Iterable[NewFile], removed: Iterable[int]) -> None:
    """Add files that each letter will carry, replacing those of the same name. Raises BadInput, Closed."""
    new = list(new)
    kept = [one for one in list_draft_files(draft) if one.pk not in set(removed)]
    names = {one.name for one in new}
    CampaignFiles([*new, *(make_new_file(one) for one in kept if one.name not in names)])  # raises if they do not fit
    stored = file_storage.keep_all(CampaignFiles(new)) if new else []
    with transaction.atomic():
        # the new revision refuses sends by pages that showed other files
        mine = Draft.objects.filter(open_drafts_condition(), pk=draft.pk)
        if not mine.update(message_revision=F("message_revision") + 1, updated_at=timezone.now()):
            raise Closed(load_draft(draft.pk))
        DraftFile.objects.filter(Q(pk__in=list(removed)) | Q(name__in=names), draft=draft).delete()
        DraftFile.objects.bulk_create(
            (DraftFile(draft=draft, file_id=digest, name=one.name, content_type=one.kind) for one, digest in stored),
            ignore_conflicts=True,
        )


def list_draft_files(draft: Draft) -> list[DraftFile]:
    """Return the draft's files with their sizes, without their contents."""
    return list(draft.files.select_related("file").defer("file__content"))


def make_new_file(one: DraftFile, body: str = "") -> NewFile:
    """Return a stored file as a NewFile; an image that the HTML shows as cid:NAME becomes an image within it."""
    cid = one.name if f"cid:{one.name}" in body else ""
    digest = bytes(one.file_id)
    return NewFile(one.name, one.file.size, lambda: bytes(one.file.content), one.content_type, cid, digest=digest)


def images_within(draft: Draft, body: str, most: int) -> tuple[tuple[Attachment, ...], bool]:
    """Return the images that a body shows as cid:NAME, of this many bytes together, and True if it shows more."""
    names, chosen, size = set(IMAGE.findall(body)), [], 0
    if not names:
        return (), False
    found = [one for one in list_draft_files(draft) if one.name in names]
    for one in sorted(found, key=lambda one: one.file.size):
        size += one.file.size
        if size <= most:
            chosen.append(one.pk)
    rows = draft.files.filter(pk__in=chosen).select_related("file")
    images = (Attachment(one.name, make_new_file(one).kind, bytes(one.file.content), one.name) for one in rows)
    return tuple(images), len(chosen) < len(found)


def delete_draft(draft: Draft) -> bool:
    """Delete a draft with its list. A draft already sent or being sent stays."""
    return _delete_held(Draft.objects.filter(open_drafts_condition(), pk=draft.pk))


def _delete_held(rows: "QuerySet[Draft]") -> bool:
    """Delete drafts under their row locks: the cascade works from keys read before, and one may be sent meanwhile."""
    with transaction.atomic():
        held = list(rows.select_for_update().values_list("pk", flat=True))
        return bool(Draft.objects.filter(pk__in=held).delete()[0])


def delete_old_drafts() -> None:
    """Delete drafts untouched for UNUSED, sent drafts after SENT, and the lists of all sent drafts."""
    now = timezone.now()
    old = Q(open_drafts_condition(), updated_at__lt=now - UNUSED) | Q(campaign__isnull=False, updated_at__lt=now - SENT)
    for pk in list(Draft.objects.filter(old).values_list("pk", flat=True)):
        _delete_held(Draft.objects.filter(old, pk=pk))
    needless = DraftBlock.objects.filter(draft__campaign__isnull=False).exclude(kind=DraftBlock.LEFT_OUT)
    needless._raw_delete(needless.db)

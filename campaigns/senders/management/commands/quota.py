"""`manage.py quota`: sets and lists how much sponsors may send."""

from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction

from campaigns.doors.sponsors import OF_SPONSOR, filter_by_sponsor, named_sponsor
from campaigns.models import SponsorQuota
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import write_moment
from vendors.management import arguments, facts
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb

SPONSOR = declare_argument("sponsor")
WHICH = (
    declare_argument("what", help="messages, units, or a currency such as EUR for money"),
    declare_argument("span", choices=SponsorQuota.Span.values, help="in flight, a day or a month (UTC)"),
    declare_argument(
        "--vendor", metavar="SLUG", help="at this vendor; default: all vendors together, except sandboxes"
    ),
)
MOST = declare_argument("most", help="so much is allowed; 0 allows nothing")
WARN = declare_argument(
    "--warn", type=int, metavar="PERCENT", help="warn when so much is used; default: 80, or as it is"
)


def quota_facts(row: SponsorQuota) -> dict[str, Any]:
    most = f"{row.most.normalize():f}" if row.measure == SponsorQuota.Measure.MONEY else f"{row.most:.0f}"
    return {
        "sponsor": row.sponsor.name,
        "vendor": row.vendor.slug if row.vendor else None,
        "most": most,
        "what": row.currency or row.measure,
        "span": row.span,
        "warn_percent": row.warn_percent,
    }


class Command(ResourceCommand):
    help = (
        "How much a sponsor may send: in flight, a day or a month, in all or at one vendor. Above it new work is "
        "refused and jobs are held; without a quota nothing is. A change holds at once. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    one_object = "a quota"
    shown = ("sponsor", "vendor", "most", "what", "span", "used", "percent", "renewed_at")
    row_facts = staticmethod(quota_facts)

    @declare_verb("a new quota", SPONSOR, MOST, *WHICH, WARN)
    def do_add(self, sponsor: str, most: str, **options: Any) -> None:
        row = _unsaved_quota(sponsor, options)
        if _stored_quotas(row).exists():
            raise CommandError(f"{row.sponsor.name} has this quota already: quota set changes it")
        row.most, row.warn_percent = (
            _parse_amount(most),
            row.warn_percent if options["warn"] is None else options["warn"],
        )
        with transaction.atomic():
            _check_quota(row)
            row.save()
            facts.log_added(row)
        self.write_row(row, "added")

    @declare_verb("another amount, or another warning", SPONSOR, MOST, *WHICH, WARN)
    def do_set(self, sponsor: str, most: str, **options: Any) -> None:
        row = _stored_quotas(_unsaved_quota(sponsor, options)).first()
        if row is None:
            raise CommandError("there is no such quota: quota add makes one, quota list shows all")
        row.most, row.warn_percent = (
            _parse_amount(most),
            row.warn_percent if options["warn"] is None else options["warn"],
        )
        _check_quota(row)
        with facts.log_changes(row, quota_facts):
            row.save(update_fields=["most", "warn_percent"])
        self.write_row(row, "set")

    @declare_verb("the quota holds no more", SPONSOR, *WHICH)
    def do_remove(self, sponsor: str, **options: Any) -> None:
        asked = _unsaved_quota(sponsor, options)
        with transaction.atomic():
            row = _stored_quotas(asked).first()
            if row:
                facts.log_removed(row)
                row.delete()
        name = f"{asked.sponsor.name}: {options['what']} {options['span']}"
        self.write_result(f"{name} {'removed' if row else 'was no quota'}", quota_facts(row or asked))

    @declare_verb("all of them, with what is used", OF_SPONSOR, declare_argument("--vendor", metavar="SLUG"))
    def do_list(self, **options: Any) -> None:
        rows = filter_by_sponsor(SponsorQuota.objects.select_related("sponsor", "vendor"), options["sponsor"])
        if options["vendor"]:
            rows = rows.filter(vendor=arguments.find_vendor(options["vendor"]))
        uses = admission.find_uses({row.sponsor_id for row in rows})
        self.write_facts(({**quota_facts(row), **_use_facts(uses.get(row.pk))} for row in rows), self.shown)


def _use_facts(use: Any) -> dict[str, Any]:
    if use is None:  # made since
        return {"used": None, "percent": None, "warns": None, "renewed_at": None}
    renewed = write_moment(use.renewed_at) if use.renewed_at else None
    return {
        "used": str(use.quota.write_rounded(use.used)),
        "percent": use.percent,
        "warns": use.warns,
        "renewed_at": renewed,
    }


def _unsaved_quota(sponsor: str, options: dict[str, Any]) -> SponsorQuota:
    """Return the named quota, unsaved."""
    what = options["what"]
    counted = what in (SponsorQuota.Measure.MESSAGES, SponsorQuota.Measure.UNITS)
    return SponsorQuota(
        sponsor=named_sponsor(sponsor),
        vendor=arguments.find_vendor(options["vendor"]) if options["vendor"] else None,
        span=options["span"],
        measure=what if counted else SponsorQuota.Measure.MONEY,
        currency="" if counted else what,
        most=Decimal(0),
    )


def _stored_quotas(row: SponsorQuota) -> Any:
    same = {name: getattr(row, name) for name in ("sponsor", "vendor", "span", "measure", "currency")}
    return SponsorQuota.objects.select_related("sponsor", "vendor").filter(**same)


def _parse_amount(text: str) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite():
        raise CommandError(f"{text!r} is not a number")
    return found


def _check_quota(row: SponsorQuota) -> None:
    try:
        row.full_clean()
    except ValidationError as error:
        raise CommandError("; ".join(error.messages)) from None

"""`manage.py weight`: sets and lists the weights by which sponsors share a vendor."""

from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from campaigns.doors.sponsors import OF_SPONSOR, filter_by_sponsor, named_sponsor
from campaigns.models import SponsorTurn
from campaigns.models.sharing import WEIGHT_MAX
from vendors.management import arguments, facts
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb


def weight_facts(row: SponsorTurn) -> dict[str, Any]:
    return {"sponsor": row.sponsor.name, "vendor": row.vendor.slug, "weight": row.weight}


class Command(ResourceCommand):
    help = (
        "By which weights sponsors share a vendor while several of them have work there: set, list. Without a row a "
        "sponsor has 1. A change holds within a second. Exit codes: 0 done (or it was so already), 1 unknown name "
        "or bad value, 2 usage."
    )
    one_object = "a weight"
    shown = ("sponsor", "vendor", "weight")
    row_facts = staticmethod(weight_facts)

    @declare_verb(
        "2 gets twice as much as 1",
        declare_argument("sponsor"),
        declare_argument("vendor"),
        declare_argument("weight", type=int),
    )
    def do_set(self, sponsor: str, vendor: str, weight: int, **options: Any) -> None:
        if not 1 <= weight <= WEIGHT_MAX:
            raise CommandError(f"a weight is a whole number from 1 to {WEIGHT_MAX}")
        who, of = named_sponsor(sponsor), arguments.find_vendor(vendor)
        with transaction.atomic():
            row, _ = SponsorTurn.objects.get_or_create(sponsor=who, vendor=of)
            with facts.log_changes(row, weight_facts):
                SponsorTurn.objects.filter(pk=row.pk).update(weight=weight)
        row.weight = weight
        self.write_result(f"{row}: weight {weight}", weight_facts(row))

    @declare_verb("all of them", OF_SPONSOR, declare_argument("--vendor", metavar="SLUG"))
    def do_list(self, **options: Any) -> None:
        rows = filter_by_sponsor(SponsorTurn.objects.select_related("sponsor", "vendor"), options["sponsor"])
        if options["vendor"]:
            rows = rows.filter(vendor=arguments.find_vendor(options["vendor"]))
        self.write_rows(rows)

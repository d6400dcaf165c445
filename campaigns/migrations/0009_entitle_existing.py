"""Existing installations keep what they used.

Each sponsor is entitled to the vendors over which it has campaigns. The From address of a relay's settings becomes a
sender identity of each sponsor that has campaigns over it. In an installation without campaigns its only sponsor is
entitled to its first vendor; a sponsor that never sent is else entitled to nothing.
"""

from email.utils import parseaddr

from django.db import migrations
from django.db.models import Max


def entitle(apps, schema_editor):
    Campaign, Entitlement, Sponsor, Vendor = (
        apps.get_model(*name)
        for name in [("campaigns", "Campaign"), ("campaigns", "Entitlement"), ("campaigns", "Sponsor"), ("vendors", "Vendor")]
    )
    vendors = {vendor.pk: vendor for vendor in Vendor.objects.all()}
    used = Campaign.objects.order_by().values("sponsor", "credential__vendor").annotate(last=Max("id"))
    pairs = [(row["sponsor"], row["credential__vendor"]) for row in used.order_by("-last")]
    sponsors = list(Sponsor.objects.values_list("pk", flat=True)[:2])
    if not pairs and len(sponsors) == 1 and vendors:
        pairs = [(sponsors[0], min(vendors))]
    Entitlement.objects.bulk_create(Entitlement(sponsor_id=sponsor, vendor_id=vendor) for sponsor, vendor in pairs)
    known = {}
    for sponsor, vendor in pairs:
        address = vendors[vendor].settings.get("sender") if vendors[vendor].adapter == "smtp" else None
        if not address:
            continue
        identity = known.get((sponsor, address)) or _identity(apps, sponsor, vendors[vendor].slug, address)
        known[sponsor, address] = identity
        # Of those that can still go: others were sent as what the relay's settings say, and would again.
        open_jobs = apps.get_model("campaigns", "Job").objects.filter(sponsor=sponsor, vendor=vendor).exclude(status="LOGGED")
        Campaign.objects.filter(pk__in=open_jobs.values("campaign")).update(identity=identity)


def _identity(apps, sponsor, slug, address):
    Identity = apps.get_model("campaigns", "Identity")
    first = not Identity.objects.filter(sponsor=sponsor).exists()
    name, plain = parseaddr(address)
    return Identity.objects.create(
        sponsor_id=sponsor, name="default" if first else slug, default=first, from_name=name, from_address=plain
    )


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0008_identities")]

    operations = [migrations.RunPython(entitle, migrations.RunPython.noop)]

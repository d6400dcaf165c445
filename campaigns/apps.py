from django.apps import AppConfig
from django.db.models.signals import post_save
from django.utils.translation import gettext_lazy


class CampaignsConfig(AppConfig):
    name = "campaigns"
    verbose_name = gettext_lazy("Campaigns")

    def ready(self) -> None:
        from campaigns.entitlements import offer_first
        from campaigns.models import Sponsor
        from campaigns.routes.whose import count_called_here
        from campaigns.suppression.lists import vendor_made
        from vendors.destinations import open_doubts
        from vendors.models import Vendor

        post_save.connect(offer_first, sender=Sponsor)
        post_save.connect(offer_first, sender=Vendor)
        post_save.connect(vendor_made, sender=Vendor)
        open_doubts.connect(count_called_here)

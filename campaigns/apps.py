from django.apps import AppConfig
from django.db.models.signals import post_save


class CampaignsConfig(AppConfig):
    name = "campaigns"

    def ready(self) -> None:
        from campaigns.entitlements import offer_first
        from campaigns.models import Sponsor
        from vendors.models import Vendor

        post_save.connect(offer_first, sender=Sponsor)
        post_save.connect(offer_first, sender=Vendor)

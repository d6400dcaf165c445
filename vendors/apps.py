from django.apps import AppConfig
from django.db.models.signals import pre_save


class VendorsConfig(AppConfig):
    name = "vendors"

    def ready(self) -> None:
        from vendors.configuration import note_reports
        from vendors.models import Vendor

        pre_save.connect(note_reports, sender=Vendor)

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_save
from django.utils.translation import gettext_lazy


class VendorsConfig(AppConfig):
    name = "vendors"
    verbose_name = gettext_lazy("Vendors")

    def ready(self) -> None:
        from vendors.configuration import note_reports, note_stored_reports
        from vendors.models import Vendor

        pre_save.connect(note_reports, sender=Vendor)
        post_migrate.connect(note_stored_reports, sender=self)

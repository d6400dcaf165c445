"""Vendors, their credentials, limits and casters. Secrets go in here, and never come out."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from vendors import adapters, health
from vendors.adapters.options import InvalidSettings
from vendors.listing import CappedPaginator, ReadOnly
from vendors.models import Credential, Mailcaster, RateLimit, Usage, Vendor

PRICE = (
    "0 pauses. A place is held until its window has passed since the call ended, so the rate that is reached is "
    "units × seconds/(seconds + the vendor's latency): enter the longest window that the contract allows."
)


class WriteOnly(forms.Textarea):
    """Never shows what is stored, nor what was typed before an error."""

    def format_value(self, value: Any) -> str:
        return ""


class VendorForm(forms.ModelForm):
    adapter = forms.ChoiceField(choices=lambda: [(name, name) for name in adapters.names()])

    class Meta:
        model = Vendor
        fields = "__all__"

    def clean(self) -> dict[str, Any]:
        """The adapter judges its settings."""
        cleaned = super().clean() or {}
        if cleaned.get("adapter") and isinstance(cleaned.get("settings"), dict):
            try:
                typed = adapters.load(cleaned["adapter"]).validate(cleaned["settings"])
                cleaned["settings"] = {key: typed[key] for key in cleaned["settings"]}
            except InvalidSettings as error:
                self.add_error("settings", error.errors)
        return cleaned


class CredentialForm(forms.ModelForm):
    secret = forms.JSONField(
        required=False,
        widget=WriteOnly,
        help_text='A JSON object, as {"Authorization": "..."}. Never shown; empty keeps what is stored.',
    )

    class Meta:
        model = Credential
        fields = ["vendor", "name", "exclusive", "secret", "paused", "paused_reason"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.pop("secret", None)

    def clean_secret(self) -> dict[str, str]:
        secret = self.cleaned_data["secret"]
        if not secret:
            return self.instance.secret
        if not isinstance(secret, dict) or not all(isinstance(value, str) for value in secret.values()):
            raise forms.ValidationError("One JSON object with texts, please.")
        return secret

    def clean(self) -> dict[str, Any]:
        """The adapter judges the secret; its complaints name headers, never values."""
        cleaned = super().clean() or {}
        vendor = self.instance.vendor if self.instance.pk else cleaned.get("vendor")
        if vendor and "secret" in cleaned:
            try:
                adapters.load(vendor.adapter)(vendor.settings, cleaned["secret"])
            except InvalidSettings as error:
                self.add_error("secret", error.errors)
        return cleaned


class OnlyWhatChanged(admin.ModelAdmin):
    """Saves the fields of the form alone: the pipeline writes others of the same row meanwhile."""

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        if not change:
            obj.save()
        elif changed := [name for name in form.changed_data if name in form.cleaned_data]:
            obj.save(update_fields=changed)


class Limits(admin.TabularInline):
    model = RateLimit
    extra = 0
    verbose_name_plural = f"rate limits. {PRICE}"


class VendorLimits(Limits):
    fields = ["units", "seconds"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RateLimit]:
        return super().get_queryset(request).filter(credential=None)


class CredentialLimits(Limits):
    fields = ["units", "seconds"]


class Casters(admin.TabularInline):
    model = Mailcaster
    extra = 0


@admin.register(Vendor)
class VendorAdmin(OnlyWhatChanged):
    form = VendorForm
    list_display = ["slug", "name", "channel", "adapter", "limits", "health", "dispatch_at", "time_zone", "paused"]
    list_filter = ["channel", "paused"]
    search_fields = ["slug", "name"]
    inlines = [VendorLimits, Casters]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Vendor]:
        return super().get_queryset(request).prefetch_related("limits")

    def limits(self, vendor: Vendor) -> str:
        return ", ".join(f"{row.units}/{row.seconds:g}" for row in vendor.limits.all() if row.credential_id is None)

    def health(self, vendor: Vendor) -> str:
        try:
            return str(health.at(settings.REDIS_URL).look(vendor.pk, health.Terms.of(vendor)))
        except health.Unreachable:
            return "unknown: Redis is away"

    def get_readonly_fields(self, request: HttpRequest, obj: Vendor | None = None) -> list[str]:
        return ["slug"] if obj else []  # it names the queue that workers listen to


@admin.register(Credential)
class CredentialAdmin(OnlyWhatChanged):
    form = CredentialForm
    list_display = ["name", "vendor", "exclusive", "paused", "paused_reason", "closed_until"]
    list_filter = ["vendor", "paused", "exclusive"]
    list_select_related = ["vendor"]
    search_fields = ["name", "vendor__slug"]
    inlines = [CredentialLimits]

    def get_readonly_fields(self, request: HttpRequest, obj: Credential | None = None) -> list[str]:
        return ["vendor"] if obj else []

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """A limit of a credential is one of its vendor too."""
        for limit in formset.save(commit=False):
            limit.vendor_id = form.instance.vendor_id
            limit.save()
        for limit in formset.deleted_objects:
            limit.delete()


@admin.register(Mailcaster)
class MailcasterAdmin(admin.ModelAdmin):
    list_display = ["name", "vendor", "kind", "min_size", "max_size", "percentage", "enabled"]
    list_filter = ["vendor", "kind", "enabled"]
    list_select_related = ["vendor"]


@admin.register(RateLimit)
class RateLimitAdmin(ReadOnly):
    """All at a glance; they are edited on the pages of their vendor and credential."""

    list_display = ["vendor", "credential", "units", "seconds"]
    list_filter = ["vendor"]
    list_select_related = ["vendor", "credential__vendor"]


@admin.register(Usage)
class UsageAdmin(ReadOnly):
    """The ledger of calls: what the throttle's window is rebuilt from, and what the audit of P4 reads."""

    list_display = ["at", "vendor_id", "credential_id", "units", "until"]
    ordering = ["-id"]
    sortable_by = ()
    paginator = CappedPaginator

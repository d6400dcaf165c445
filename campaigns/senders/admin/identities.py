"""The pages about sender identities, messages to them, topics and entitlements. Stored keys are never shown."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from campaigns.doors import labels
from campaigns.doors.admin_base import OfSeenVendors, Scoped
from campaigns.lists.admin import SponsorFilter
from campaigns.models import Entitlement, Identity, InboundMessage, Sponsor, Topic
from campaigns.models.campaigns import sponsors_of
from campaigns.senders import entitlements, sender_changes
from campaigns.senders.refused_senders import find_refused
from vendors.adapters import dkim
from vendors.admin import OnlyWhatChanged
from vendors.forms import WriteOnly
from vendors.history import Actor
from vendors.listing import badge, choice_column, flag_column
from vendors.models import Vendor
from vendors.ownership import owned_credentials, owned_vendors, owns_vendor


class OfTheirSponsors(OnlyWhatChanged):
    """Rows of the user's sponsors; they can be added for these sponsors only."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        model: Any = self.model
        rows: QuerySet[Any] = model.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor")
        return rows

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "sponsor":
            kwargs["queryset"] = Sponsor.objects.of_sponsors(sponsors_of(request.user))
        if db_field.name == "credential":
            kwargs["queryset"] = owned_credentials(request.user)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["sponsor"] if obj else []


if TYPE_CHECKING:  # where alone Django's forms have a parameter
    _IdentityForm = forms.ModelForm[Identity]
else:
    _IdentityForm = forms.ModelForm


class IdentityForm(_IdentityForm):
    secret = forms.CharField(
        required=False,
        widget=WriteOnly,
        label=gettext_lazy("DKIM private key"),
        help_text=gettext_lazy(
            "An RSA key in PEM. Never shown; empty keeps what is stored. `manage.py identity dkim` makes one."
        ),
    )

    class Meta:
        model = Identity
        fields = [
            *("sponsor", "name", "channel", "sender_id", "numbers"),
            *("stop_texts", "start_texts", "help_texts", "help_answer"),
            *("from_name", "from_address", "reply_to", "return_path", "verp", "default", "enabled"),
            *("dkim_domain", "dkim_selector", "secret"),
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.pop("secret", None)

    def clean_secret(self) -> dict[str, str]:
        typed = self.cleaned_data["secret"].strip()
        if not typed:
            kept: dict[str, str] = self.instance.secret
            return kept
        try:
            return {"private_key": dkim.private_key(typed)}
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None

    def clean(self) -> dict[str, Any]:
        """Delete the key if domain and selector are empty; let a new default identity replace the old one.

        The first identity of its sponsor and channel becomes the default, as with the commands and the API.
        """
        cleaned = super().clean() or {}
        entitlements.one_change()  # takes the lock before comparing with others' numbers
        if not cleaned.get("dkim_domain") and not cleaned.get("dkim_selector") and "secret" not in self.changed_data:
            cleaned["secret"] = {}
        sponsor = cleaned.get("sponsor")
        first = (
            not self.instance.pk and sponsor and not sender_changes.has_default(sponsor.pk, cleaned.get("channel", ""))
        )
        self.new_default = bool(cleaned.get("default") or first) and not self.instance.default
        if self.new_default:
            cleaned["default"] = False  # until the old default has been reset
        return cleaned


@admin.register(Identity)
class IdentityAdmin(OfTheirSponsors):
    form = IdentityForm
    list_display = [
        "name",
        "sponsor",
        choice_column("channel"),
        "shown",
        "reply_to",
        flag_column("default", "default", "good"),
        "works",
        "dkim_selector",
    ]
    list_filter = [SponsorFilter, "channel", "enabled"]
    search_fields = ["name", "from_address", "sender_id", "sponsor__name"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*super().get_readonly_fields(request, obj), *(["channel", "works"] if obj else [])]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = super().get_fields(request, obj)
        return fields if obj else [name for name in fields if name != "works"]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Find the page's refused identities in one statement."""
        listed = super().get_changelist_instance(request)
        refused = find_refused([row.pk for row in listed.result_list])
        for row in listed.result_list:
            row.refused = refused.get(row.pk)
        return listed

    @admin.display(description=gettext_lazy("state"), ordering="enabled")
    def works(self, identity: Any) -> SafeString:
        """Say whether it is in use, and why a vendor does not take it."""
        state = badge("in use", "good") if identity.enabled else badge("off")
        refused = identity.refused if hasattr(identity, "refused") else find_refused([identity.pk]).get(identity.pk)
        return format_html("{}<br>{}", state, refused) if refused else state

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        row: Any = obj
        if form.new_default:
            entitlements.free_default(row.sponsor, row.channel)
            row.default = form.cleaned_data["default"] = True
        super().save_model(request, row, form, change)

    def store_fields(self, request: HttpRequest, obj: Any, fields: list[str], same_account: bool) -> None:
        obj.save(update_fields=[*fields, "default", "secret"])


@admin.register(Topic)
class TopicAdmin(OfTheirSponsors):
    fields = ["sponsor", "name", "title"]
    list_display = ["name", "sponsor", "title", "created_at", "archived_at"]
    list_filter = [SponsorFilter]
    search_fields = ["name", "title", "sponsor__name"]
    actions = ["archive", "restore"]

    @admin.action(description=gettext_lazy("Archive: no new campaign can name them"), permissions=["change"])
    def archive(self, request: HttpRequest, rows: QuerySet[Topic]) -> TemplateResponse | None:
        return self._ask_and_archive(request, rows, "archive")

    @admin.action(description=gettext_lazy("Restore: campaigns can name them again"), permissions=["change"])
    def restore(self, request: HttpRequest, rows: QuerySet[Topic]) -> TemplateResponse | None:
        return self._ask_and_archive(request, rows, "restore")

    def _ask_and_archive(self, request: HttpRequest, rows: QuerySet[Topic], action: str) -> TemplateResponse | None:
        """Ask first; once confirmed, archive the topics shown. A second press changes nothing."""
        archived = action == "archive"
        meant = list(rows.filter(archived_at__isnull=archived))
        if "confirmed" in request.POST or not meant:
            by = Actor(request.user.get_username(), request.user.pk)
            number = sum(sender_changes.archive_topic(row.pk, archived, by) for row in meant)
            text = gettext("%(number)s archived.") if archived else gettext("%(number)s restored.")
            self.message_user(request, text % {"number": labels.format_number(number)})
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Archive topics") if archived else gettext("Restore topics"),
            "action": action,
            "archived": archived,
            "topics": meant,
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/campaigns/topic/archive.html", context)


@admin.register(Entitlement)
class EntitlementAdmin(OfTheirSponsors):
    list_display = ["sponsor", "vendor", "credential", choice_column("urgent"), "created_at"]
    list_filter = [SponsorFilter, ("vendor", OfSeenVendors), "urgent"]
    fields = ["sponsor", "vendor", "credential", "urgent"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the entitlements of the user's sponsors, and to the vendors the user governs and may withdraw."""
        rows = Entitlement.objects.select_related("sponsor", "vendor", "credential__vendor").defer("credential__secret")
        mine, vendors = sponsors_of(request.user), owned_vendors(request.user)
        return rows if mine is None else rows.filter(Q(sponsor__in=mine) | Q(vendor__in=vendors))

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        mine = owned_vendors(request.user)
        if db_field.name == "vendor" and mine is not None:
            kwargs["queryset"] = Vendor.objects.filter(pk__in=mine)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["sponsor", "vendor", "credential"] if obj else []  # it is granted or withdrawn

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow it to the vendor's owner: urgent mail goes before that of all others."""
        return super().has_change_permission(request, obj) and (obj is None or owns_vendor(request.user, obj.vendor_id))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow withdrawals to the vendor's owner, who alone grants."""
        return super().has_delete_permission(request, obj) and (obj is None or owns_vendor(request.user, obj.vendor_id))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            entitlements.set_urgent(obj, obj.urgent)
            return
        granted, _ = entitlements.grant_entitlement(obj.sponsor, obj.vendor, obj.credential, obj.urgent)
        obj.pk = granted.pk


@admin.register(InboundMessage)
class InboundMessageAdmin(Scoped):
    """The SMS received. Users who may not see recipients see neither their numbers nor their texts."""

    telling = ("sender", "text")
    list_display = ["id", "whose", "number", "to", choice_column("command"), "text", "answer", "written_at"]
    list_filter = ["command", SponsorFilter, ("vendor", OfSeenVendors)]
    list_select_related = ["sponsor", "vendor", "answer"]
    list_per_page = 100
    ordering = ["-id"]
    sortable_by = ()

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Show only the first character of a number to users who may not see recipients."""
        seen = labels.sees_recipients(request.user)

        @admin.display(description=gettext_lazy("from"))
        def number(row: InboundMessage) -> str:
            return labels.format_recipient(row.sender, seen)

        return [number if name == "number" else name for name in super().get_list_display(request)]

    @admin.display(description=gettext_lazy("from"))
    def number(self, row: InboundMessage) -> str:
        return labels.format_recipient(row.sender, seen=False)

    @admin.display(description=gettext_lazy("sponsor"))
    def whose(self, row: InboundMessage) -> str:
        """Return the sponsor; numbers without an identity belong to no single sponsor."""
        return str(row.sponsor) if row.sponsor else "of no identity"

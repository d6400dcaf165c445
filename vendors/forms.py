"""Forms of vendors and credentials; the adapter checks the entries."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.formsets import INITIAL_FORM_COUNT, TOTAL_FORM_COUNT
from django.utils import formats
from django.utils.functional import cached_property
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from vendors import adapters, configuration, destinations, receiver_domains, receiver_limits
from vendors.adapters.options import InvalidSettings, NoSecret
from vendors.described import reading
from vendors.history import Actor
from vendors.listing import NamedFields
from vendors.models import Credential, ReceiverDomain, ReceiverLimit, Vendor
from vendors.receivers import OTHERS, known_groups
from vendors.said import Said, gettext_noop

UPLOAD, SAME_ACCOUNT = "description", "same_account"  # fields of the form only
TWICE = gettext_noop("Two limits have the same window.")


class WriteOnly(forms.Textarea):
    """A text field that shows neither the stored value nor an entry from before an error."""

    def format_value(self, value: Any) -> str:
        return ""


class Indented(forms.JSONField):
    """JSON, shown with a line for each key."""

    def prepare_value(self, value: Any) -> Any:
        return (
            json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, dict) else super().prepare_value(value)
        )


def _same_account_field() -> forms.BooleanField:
    return forms.BooleanField(label=_("It is the same account"), required=False)


def _doubts_warning(doubts: int) -> str:
    """Say how many doubts a change of address or account would leave to a person."""
    said = ngettext(
        "%(number)s message is in doubt. If calls are made elsewhere or with another key from now on, only you can "
        "settle it, unless you say here that they reach the same account.",
        "%(number)s messages are in doubt. If calls are made elsewhere or with another key from now on, only you can "
        "settle them, unless you say here that they reach the same account.",
        doubts,
    )
    shown = formats.number_format(doubts, force_grouping=True)
    return said % {"number": shown} if doubts else gettext("No message is in doubt.")


if TYPE_CHECKING:  # where alone Django's forms have a parameter
    _VendorForm = forms.ModelForm[Vendor]
    _CredentialForm = forms.ModelForm[Credential]
    _LimitForm = forms.ModelForm[ReceiverLimit]
    _DomainForm = forms.ModelForm[ReceiverDomain]
else:
    _VendorForm = _CredentialForm = _LimitForm = _DomainForm = forms.ModelForm


class VendorForm(_VendorForm):
    same_account = _same_account_field()
    adapter = forms.ChoiceField(label=_("Adapter"), choices=lambda: [(name, name) for name in adapters.list_names()])
    description = forms.FileField(
        label=_("Description"),
        required=False,
        help_text=_("A description of the vendor, in TOML, for the adapter described. Stored in its settings."),
    )

    @cached_property
    def changed_data(self) -> list[str]:
        """Names of changed fields. An uploaded description belongs to the settings."""
        changed = [name for name in super().changed_data if name != SAME_ACCOUNT]
        return list(dict.fromkeys("settings" if name == UPLOAD else name for name in changed))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if SAME_ACCOUNT in self.fields:
            known = self.instance.pk is not None
            self.fields[SAME_ACCOUNT].help_text = (
                _doubts_warning(destinations.count_doubts(self.instance)) if known else ""
            )

    class Meta:
        model = Vendor
        fields = "__all__"
        field_classes = {"settings": Indented}
        widgets = {"settings": forms.Textarea({"rows": 6, "cols": 80, "class": "code", "spellcheck": "false"})}
        help_texts = {
            "settings": _("Whoever changes where the secrets go (url, host, port, TLS) has to enter them again."),
            "small_audience_threshold": _("A job with fewer messages is small; the others are cut into parts."),
            "min_requests": _("With fewer answers than this the vendor counts as healthy."),
            "dispatch_at": _("Local time of the nightly dispatch"),
        }

    def clean(self) -> dict[str, Any]:
        """Validate the settings with the adapter."""
        cleaned = super().clean() or {}
        if cleaned.get("description") and isinstance(cleaned.get("settings"), dict):
            try:
                text = cleaned["description"].read(reading.LONGEST + 1).decode()
            except UnicodeDecodeError:
                text = ""
                self.add_error("description", _("This is no text."))
            cleaned["settings"] = {**cleaned["settings"], "description": text}
        if cleaned.get("adapter") and isinstance(cleaned.get("settings"), dict):
            try:
                typed = adapters.load(cleaned["adapter"]).validate(cleaned["settings"])
                cleaned["settings"] = {key: typed[key] for key in cleaned["settings"]}
            except InvalidSettings as error:
                self.add_error("settings", error.errors)
            except LookupError as error:
                self.add_error("adapter", str(error))
        return cleaned


class CredentialForm(_CredentialForm):
    same_account = _same_account_field()

    @cached_property
    def changed_data(self) -> list[str]:
        return [name for name in super().changed_data if name != SAME_ACCOUNT]

    secret = forms.JSONField(
        label=_("Secret"),
        required=False,
        widget=WriteOnly,
        help_text=_('A JSON object, as {"Authorization": "..."}. Never shown; empty keeps what is stored.'),
    )

    class Meta:
        model = Credential
        fields = ["vendor", "name", "exclusive", "secret"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.pop("secret", None)
        if SAME_ACCOUNT in self.fields and self.instance.pk:
            doubts = destinations.count_doubts(self.instance.vendor, self.instance)
            self.fields[SAME_ACCOUNT].help_text = _doubts_warning(doubts)

    def clean_secret(self) -> dict[str, str]:
        secret = self.cleaned_data["secret"]
        if not secret:
            kept: dict[str, str] = self.instance.secret
            return kept
        if not isinstance(secret, dict) or not all(isinstance(value, str) for value in secret.values()):
            raise forms.ValidationError(Said("Enter one JSON object whose values are texts."))
        return secret

    def clean(self) -> dict[str, Any]:
        """Validate the secret with the adapter, whose errors name headers, never values."""
        cleaned = super().clean() or {}
        vendor = self.instance.vendor if self.instance.pk else cleaned.get("vendor")
        if vendor and "secret" in cleaned:
            try:
                adapters.load(vendor.adapter).for_credential(vendor.settings, cleaned["secret"])
            except NoSecret as error:
                self._await_secret(error, cleaned["secret"])
            except (InvalidSettings, LookupError) as error:
                self.add_error("secret", getattr(error, "errors", [str(error)]))
        return cleaned

    def _await_secret(self, error: NoSecret, typed: Mapping[str, str]) -> None:
        """Have a new credential wait for its secret; an existing one may lack it while it is paused."""
        if not typed and not self.instance.pk:
            for name, value in configuration.paused_until_secret(error).items():
                setattr(self.instance, name, value)
        elif typed or not self.instance.paused:
            self.add_error("secret", [*error.errors, Said("Without its secret a credential can only be paused.")])


class ReceiverDomainForm(_DomainForm):
    class Meta:
        model = ReceiverDomain
        fields = ["domain", "receiver"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            domain = cleaned.get("domain", self.instance.domain)
            cleaned["domain"] = receiver_domains.checked_domain(domain)
            receiver_domains.check_group(cleaned["receiver"])
        return cleaned


def _receiver_choices() -> list[tuple[str, Any]]:
    return [("", "---------"), *((one, one) for one in known_groups()), (OTHERS, _("* (all others)"))]


class ReceiverLimitForm(_LimitForm):
    receiver = forms.ChoiceField(
        label=_("Receiver"), choices=_receiver_choices, widget=forms.Select({"aria-label": _("Receiver")})
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """A stored row keeps its receiver, also if the group has lost its last domain."""
        super().__init__(*args, **kwargs)
        own, field = self.instance.receiver, self.fields["receiver"]
        if isinstance(field, forms.ChoiceField) and own and own not in (*known_groups(), OTHERS):
            field.choices = [*_receiver_choices(), (own, own)]


def _warm_up(row: ReceiverLimit) -> dict[str, Any]:
    return {"grows_from": row.grows_from, "growth": row.growth}


class LimitRows(NamedFields):
    """Limits on the page of a vendor or credential: no window twice, which the database would refuse.

    The functions of the commands store them, under the vendor's lock: two people may store the same concurrently.
    """

    def _edited_rows(self) -> tuple[set[int], list[Any]]:
        """Return the ids of deleted and changed rows, and the new and changed rows. Sets what Django's admin reads."""
        self.save(commit=False)
        changed = [row for row, _fields in self.changed_objects]
        return {row.pk for row in (*self.deleted_objects, *changed)}, [*changed, *self.new_objects]

    def store_rows(self, of: Vendor, login: Credential | None, by: Actor) -> None:
        """Store the form's edits."""
        gone, put = self._edited_rows()
        if gone or put:
            configuration.edit_rate_limits(of, login, gone, [(row.units, row.seconds) for row in put])

    def clean(self) -> None:
        super().clean()
        rows = [form.cleaned_data for form in self.forms if getattr(form, "cleaned_data", None)]
        kept = [(row.get("receiver"), row.get("seconds")) for row in rows if not row.get("DELETE")]
        if twice := next((one for one in kept if one[1] and kept.count(one) > 1), None):
            receiver = twice[0]
            raise ValidationError(Said(receiver_limits.TWICE, receiver=receiver) if receiver else Said(TWICE))


class ReceiverRows(LimitRows):
    """Limits of receivers. Their history is kept by the function that stores them."""

    def store_rows(self, of: Vendor, login: Credential | None, by: Actor) -> None:
        gone, put = self._edited_rows()
        rows = [
            ReceiverLimit(units=row.units, seconds=row.seconds, receiver=row.receiver, **_warm_up(row)) for row in put
        ]
        if gone or put:
            receiver_limits.edit_receiver_limits(of, login, gone, rows, by)

    def __init__(self, data: Any = None, *args: Any, **kwargs: Any) -> None:
        """A form without these rows, such as that of a page from before an upgrade, changes none of them."""
        receiver_domains.refresh_domains(at_once=True)
        prefix = kwargs.get("prefix") or self.get_default_prefix()
        if data is not None and f"{prefix}-{TOTAL_FORM_COUNT}" not in data:
            data = {**data.dict(), f"{prefix}-{TOTAL_FORM_COUNT}": "0", f"{prefix}-{INITIAL_FORM_COUNT}": "0"}
        super().__init__(data, *args, **kwargs)

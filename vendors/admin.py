"""Admin pages of vendors, credentials, limits and mailcasters. Stored secrets are never shown."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import formats
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from vendors import (
    configuration,
    deferrals,
    destinations,
    history,
    locks,
    login_check,
    prices,
    receiver_domains,
    remedies,
    restarts,
    second_person,
)
from vendors.adapters.options import NoSecret
from vendors.condition.reading import conditions_of_credentials, conditions_of_vendors
from vendors.condition.values import describe_condition, name_condition
from vendors.forms import (
    SAME_ACCOUNT,
    UPLOAD,
    CredentialForm,
    LimitRows,
    ReceiverDomainForm,
    ReceiverLimitForm,
    ReceiverRows,
    VendorForm,
)
from vendors.instants import write_time
from vendors.limits.values import Limit
from vendors.listing import (
    CONDITIONS,
    OfOwnVendors,
    OwnLookups,
    ReadOnly,
    Rows,
    badge,
    choice_column,
    condition_badge,
    flag_column,
)
from vendors.mail_classes import NO_FLOOR
from vendors.models import (
    Credential,
    Mailcaster,
    Price,
    RateLimit,
    ReceiverDomain,
    ReceiverLimit,
    Usage,
    Vendor,
    VendorChange,
)
from vendors.ownership import is_disclosed, limit_rows, owned_credentials, owned_vendors
from vendors.said import Said, gettext_noop, show

HELD = gettext_noop("It waits until a second person confirms it; so long nothing changes.")
PAUSE = ("paused", "paused_reason")  # said at the head of the page
RECENT = 20  # entries of the history on a page


# A vendor's form in sections by purpose. Its limits are above them.
PARTS = (
    (None, ("slug", "name", "owner", "channel", "paused", "paused_reason")),
    (_("How it is reached"), ("adapter", "settings", UPLOAD, "sandbox", SAME_ACCOUNT)),
    (_("Nightly dispatch"), ("dispatch_at", "time_zone", "weekdays", "catch_up")),
    (_("Classes of mail"), ("floor",)),
    (_("When it takes no work"), ("min_requests", "min_ratio", "health_ttl", "retry_after")),
)


def _tell_idle_limits(request: HttpRequest) -> None:
    for one in receiver_domains.describe_idle_limits():
        messages.warning(request, show(one))


def _tell_pause(request: HttpRequest, login: Credential) -> None:
    paused = Said(gettext_noop("%(login)s is paused: %(why)s"), login=str(login), why=login.why_paused)
    messages.warning(request, show(paused))


class OnlyWhatChanged(OwnLookups):
    """Saves only the changed fields, since senders write other fields of the same row; logs old and new values.

    Limits are stored by the functions of the commands.

    Users who may only look see no secret: Django would show every read-only field as text.
    """

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = super().get_fields(request, obj)
        if obj is None:
            return [name for name in fields if name != SAME_ACCOUNT]
        if self.has_change_permission(request, obj):
            return fields
        return [name for name in fields if name not in history.SILENT | {UPLOAD, SAME_ACCOUNT, *PAUSE}]

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Describe the changes; "" if there is nothing but limits of receivers, whose change has its own entry."""
        others = [one for one in formsets or () if not isinstance(one, ReceiverRows)]
        message = "" if add else history.describe_forms(form, others)
        if not message and not add and any(one.has_changed() for one in formsets or () if one not in others):
            return ""
        return message or super().construct_change_message(request, form, others, add)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return super().log_change(request, obj, message) if message != "" else None

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Store limits in the vendor's turn, asked for before any row is written (vendors/locks.py)."""
        if any(isinstance(one, LimitRows) and one.has_changed() for one in formsets):
            locks.lock_vendor(_vendor_of(form.instance).pk)
        super().save_related(request, form, formsets, change)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        if isinstance(formset, LimitRows):
            row = form.instance
            formset.store_rows(_vendor_of(row), row if isinstance(row, Credential) else None, _actor_of(request))
        else:
            super().save_formset(request, form, formset, change)

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        if not change:
            obj.save()
        elif changed := [name for name in form.changed_data if name in form.cleaned_data]:
            form.held = self.hold_fields(obj, changed, _actor_of(request))
            if form.held:
                messages.warning(
                    request, gettext("It waits until a second person confirms it; so long nothing changes.")
                )
            said = bool(form.cleaned_data.get(SAME_ACCOUNT))
            self.store_fields(request, obj, [name for name in changed if name not in form.held], said)

    def hold_fields(self, obj: Any, fields: list[str], by: history.Actor) -> list[str]:
        """Hold back the fields that need a second person. Returns their names."""
        return []

    def store_fields(self, request: HttpRequest, obj: Any, fields: list[str], same_account: bool) -> None:
        """Save these fields. `same_account`: the user says that calls reach the same account as before."""
        obj.save(update_fields=fields)


class OfOwners(OwnLookups):
    """Rows of vendors that the user governs. Rows can be added for no other vendor."""

    vendor_path = "vendor"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return limit_rows(super().get_queryset(request), request.user, self.vendor_path)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        mine = owned_vendors(request.user)
        if db_field.name == "vendor" and mine is not None:
            kwargs["queryset"] = Vendor.objects.filter(pk__in=mine)
        if db_field.name == "credential":
            kwargs["queryset"] = owned_credentials(request.user)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Hide affected campaigns and entitlements, which may belong to sponsors that the user does not see.

        Requests to a second person are removed with their vendor or credential; the history keeps them.
        """
        listed, counts, lacking, protected = super().get_deleted_objects(objs, request)
        lacking.discard(VendorChange._meta.verbose_name)
        if owned_vendors(request.user) is None:
            return listed, counts, lacking, protected
        kept = [gettext("rows that use it, so it stays: pause it instead")] if protected else []
        return [str(one) for one in objs], counts, lacking, kept


def _vendor_of(row: Any) -> Vendor:
    """Return the vendor whose page it is, or that of a credential's page."""
    found: Vendor = row.vendor if isinstance(row, Credential) else row
    return found


def _actor_of(request: HttpRequest) -> history.Actor:
    user: Any = request.user
    return history.Actor(user.get_username(), user.pk)


def _tell_doubts(request: HttpRequest, doubts: int) -> None:
    """Say how many messages in doubt a change leaves to a person."""
    if doubts:
        said = ngettext(
            "%(number)s message in doubt was called before this change: only you can settle it.",
            "%(number)s messages in doubt were called before this change: only you can settle them.",
            doubts,
        )
        messages.warning(request, said % {"number": formats.number_format(doubts, force_grouping=True)})


def _limit_text(row: RateLimit) -> str:
    """Return text such as "5 per 60 s", in the language of the page."""
    return show(Limit(row.units, row.seconds).terms)


def _inlines_for(inlines: Any, of: Vendor | None) -> list[Any]:
    """Return the inlines; without those of receivers if the vendor, stored already, sends no e-mail."""
    has_receivers = of is not None and of.channel == Vendor.Channel.EMAIL
    return [one for one in inlines if has_receivers or not issubclass(one, ReceiverLimits)]


LABELS = {"units": _("at most, units"), "seconds": _("in any so many seconds")}


class Limits(Rows):
    model = RateLimit
    formset = LimitRows
    verbose_name_plural = _("rate limits")
    labels = LABELS

    def tell_row(self, row: RateLimit) -> str:
        return _limit_text(row)


class VendorLimits(Limits):
    fields = ["units", "seconds"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RateLimit]:
        return super().get_queryset(request).filter(credential=None)


class CredentialLimits(Limits):
    verbose_name_plural = _("rate limits of this credential alone")
    fields = ["units", "seconds"]


class ReceiverLimits(Rows):
    """Limits of receiving domains, with a warm-up's units for today and tomorrow."""

    model = ReceiverLimit
    form = ReceiverLimitForm
    formset = ReceiverRows
    verbose_name_plural = _("limits of receivers")
    labels = LABELS
    fields = ["receiver", "units", "seconds", "grows_from", "growth", "allows"]
    readonly_fields = ["allows"]

    @admin.display(description=_("allows"), empty_value="")
    def allows(self, row: ReceiverLimit) -> str:
        return show(row.terms) if row.pk else ""

    def tell_row(self, row: ReceiverLimit) -> str:
        return f"{row.receiver}: {show(row.terms)}"


class VendorReceiverLimits(ReceiverLimits):
    def get_queryset(self, request: HttpRequest) -> QuerySet[ReceiverLimit]:
        return super().get_queryset(request).filter(credential=None).select_related("vendor")


class CredentialReceiverLimits(ReceiverLimits):
    def get_queryset(self, request: HttpRequest) -> QuerySet[ReceiverLimit]:
        return super().get_queryset(request).select_related("vendor")


class Casters(Rows):
    model = Mailcaster

    def tell_row(self, row: Mailcaster) -> str:
        state = gettext("works") if row.enabled else gettext("off")
        facts = {"name": row.name, "kind": gettext(row.get_kind_display()), "low": row.min_size, "high": row.max_size}
        return gettext("%(name)s: %(kind)s, %(low)s to %(high)s messages, %(state)s") % {**facts, "state": state}


class Pausable(OfOwners):
    """Rows with a page that pauses and resumes them, for users with the right `remedies.OPERATE`."""

    def get_urls(self) -> list[Any]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_pause"
        return [path("<int:pk>/pause/", self.admin_site.admin_view(self.pause_view), name=name), *super().get_urls()]

    def may_operate(self, request: HttpRequest, row: Any = None) -> bool:
        """Return True if the user may pause and resume this row."""
        user: Any = request.user
        return bool(user.has_perm(remedies.OPERATE)) or self.has_change_permission(request, row)

    def pause_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Pause or resume the row if it is still as the page showed it: asked by GET, done by POST with a reason."""
        row = get_object_or_404(self.get_queryset(request), pk=pk)
        if not self.may_operate(request, row):
            raise PermissionDenied
        title = (gettext("Resume %s") if row.paused else gettext("Pause %s")) % row
        if "confirmed" not in request.POST or request.method != "POST":
            context = {**self.admin_site.each_context(request), "title": title, "row": row, "opts": self.opts}
            return TemplateResponse(request, "admin/vendors/pause.html", context)
        was, reason = request.POST.get("was") == "paused", request.POST.get("reason", "").strip()
        with transaction.atomic():  # with its entry in the history, or not at all
            changed = self.switch_pause(request, row, was, reason)
            if changed:
                done = Said(gettext_noop("resumed") if was else gettext_noop("paused"))
                self.log_change(request, row, history.decision_sentence(done, typed=reason))
        if changed:
            messages.success(request, (gettext("%s goes on.") if was else gettext("%s is paused.")) % row)
        elif changed is False:
            messages.error(request, gettext("Nothing was changed: somebody else has paused or resumed %s.") % row)
        return redirect(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", pk)

    def switch_pause(self, request: HttpRequest, row: Any, was: bool, reason: str) -> bool | None:
        """Resume the row if it was paused, else pause it. False: it is not as it was; None: the user has been told."""
        raise NotImplementedError

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        row: Any = kwargs.get("obj")
        context["may_operate"] = row is not None and self.may_operate(request, row)
        return super().render_change_form(request, context, *args, **kwargs)


@admin.register(Vendor)
class VendorAdmin(Pausable, OnlyWhatChanged):
    vendor_path = "pk"
    form = VendorForm
    list_display = ["slug", "name", choice_column("channel"), "adapter", "limits", "state", "dispatch_at", "time_zone"]
    list_filter = ["channel", "paused"]
    search_fields = ["slug", "name"]
    inlines = [VendorLimits, VendorReceiverLimits, Casters]
    actions = ["release_brakes"]

    def get_inlines(self, request: HttpRequest, obj: Vendor | None = None) -> list[Any]:
        return _inlines_for(self.inlines, obj)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return self.may_operate(request)

    @admin.action(description=_("Release the brakes of all credentials"), permissions=["operate"])
    def release_brakes(self, request: HttpRequest, chosen: Any) -> None:
        released = 0
        for vendor in chosen:
            if not self.may_operate(request, vendor):
                continue
            with transaction.atomic():  # with its entries in the history, or not at all
                done = configuration.release_all_brakes(vendor)
                for login in done:
                    self.log_change(request, login, Said(gettext_noop("its brake was released")))
            released += len(done)
        messages.success(request, gettext("Brakes that were released: %s") % released)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Vendor]:
        return super().get_queryset(request).prefetch_related("limits")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        allowed = [str(name) for name in self.get_fields(request, obj) if obj is None or name not in PAUSE]
        parts = [(title, [name for name in names if name in allowed]) for title, names in PARTS]
        placed = {name for _title, names in parts for name in names}
        parts.append((_("Further settings"), [name for name in allowed if name not in placed]))
        return [(title, {"fields": names}) for title, names in parts if names]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Store a vendor. A new one is paused until a second person confirms it."""
        if not change and second_person.hold_new_vendor(obj, _actor_of(request)):
            messages.warning(request, gettext(HELD))
        else:
            super().save_model(request, obj, form, change)
        for sentence in restarts.restarts_after_adding(obj.adapter) if "adapter" in form.changed_data else ():
            messages.warning(request, show(sentence))

    def hold_fields(self, obj: Any, fields: list[str], by: history.Actor) -> list[str]:
        return second_person.hold_vendor(obj, fields, by)

    def store_fields(self, request: HttpRequest, obj: Any, fields: list[str], same_account: bool) -> None:
        moved = configuration.moved_fields(obj)
        doubts = destinations.count_doubts(obj) if moved and not same_account else 0
        for login in configuration.save_vendor(obj, fields, _actor_of(request), same_account):
            _tell_pause(request, login)
        _tell_doubts(request, doubts)
        if moved and second_person.hold_new(obj.pk, _actor_of(request)):
            messages.warning(request, gettext(HELD))

    @admin.display(description=_("limits"))
    def limits(self, vendor: Vendor) -> str:
        return ", ".join(_limit_text(row) for row in vendor.limits.all() if row.credential_id is None) or gettext(
            "none"
        )

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return the list; its rows have their conditions."""
        listed: Any = super().get_changelist_instance(request)
        found = conditions_of_vendors([row.pk for row in listed.result_list])
        for row in listed.result_list:
            row.condition = found[row.pk]
        return listed

    @admin.display(description=_("condition"))
    def state(self, vendor: Any) -> SafeString:
        """Return the vendor's condition: that of its best credential."""
        return condition_badge(vendor.condition, disclosed=is_disclosed(vendor.pk))

    def get_readonly_fields(self, request: HttpRequest, obj: Vendor | None = None) -> list[str]:
        # The slug names the queue that workers read. Recipients were parsed and compared with suppressions by the
        # channel. A pause has its own page, which asks for the reason. An owner cannot give its vendor away.
        if obj is None:
            return []
        kept = ["slug", "channel", "paused", "paused_reason"]
        return kept if owned_vendors(request.user) is None else [*kept, "owner"]

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer as owners only the user's own sponsors, unless the user governs all vendors."""
        limited = owned_vendors(request.user) is not None
        if db_field.name == "owner" and limited:
            kwargs["queryset"] = db_field.related_model.objects.filter(users=request.user)
        field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        if db_field.name == "owner" and limited:
            field.required, field.empty_label = True, None
        return field

    def switch_pause(self, request: HttpRequest, vendor: Any, was: bool, reason: str) -> bool | None:
        if was and second_person.hold_new(vendor.pk, _actor_of(request)):
            messages.warning(request, gettext(HELD))
            return None
        if was:
            return configuration.resume_vendor(vendor)
        return configuration.pause_vendor(vendor, reason)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        vendor: Any = kwargs.get("obj")
        kind = ContentType.objects.get_for_model(Vendor)
        about = LogEntry.objects.filter(content_type=kind, object_id=str(vendor.pk if vendor else ""))
        context["entries"] = about.select_related("user")[:RECENT]
        context["changes"] = second_person.open_changes(vendor) if vendor else []
        if vendor and not vendor.floor and request.method == "GET":
            messages.warning(request, gettext(NO_FLOOR))
        return super().render_change_form(request, context, *args, **kwargs)


@admin.register(Credential)
class CredentialAdmin(Pausable, OnlyWhatChanged):
    form = CredentialForm
    list_display = [
        *("name", "vendor", flag_column("exclusive", "exclusive"), "condition"),
    ]
    list_filter = [("vendor", OfOwnVendors), "paused", "exclusive"]
    list_select_related = ["vendor"]
    search_fields = ["name", "vendor__slug"]
    inlines = [CredentialLimits, CredentialReceiverLimits]
    actions = ["end_waits", "hold_brakes", "release_brakes"]

    def get_inlines(self, request: HttpRequest, obj: Credential | None = None) -> list[Any]:
        return _inlines_for(self.inlines, obj.vendor if obj else None)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return the list; its rows have their conditions."""
        listed: Any = super().get_changelist_instance(request)
        found = conditions_of_credentials([row.pk for row in listed.result_list])
        for row in listed.result_list:
            row.seen = found[row.pk]
        return listed

    @admin.display(description=_("condition"))
    def condition(self, login: Any) -> SafeString:
        return condition_badge(login.seen)

    @admin.action(description=_("Call a vendor again that asked to wait"), permissions=["change"])
    def end_waits(self, request: HttpRequest, chosen: Any) -> None:
        ended = 0
        for login in chosen:
            with transaction.atomic():
                if self.has_change_permission(request, login) and configuration.end_wait(login):
                    self.log_change(request, login, Said(gettext_noop("the wait that its vendor asked for was ended")))
                    ended += 1
        messages.success(request, gettext("Waits that were ended: %s") % ended)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return self.may_operate(request)

    @admin.action(description=_("Hold the brake: nobody calls"), permissions=["operate"])
    def hold_brakes(self, request: HttpRequest, chosen: Any) -> None:
        done = self._set_brakes(request, chosen, configuration.hold_brake, gettext_noop("its brake was held"))
        messages.success(request, gettext("Brakes that are held now: %s") % done)

    @admin.action(description=_("Release the brake: call a failing vendor again"), permissions=["operate"])
    def release_brakes(self, request: HttpRequest, chosen: Any) -> None:
        done = self._set_brakes(request, chosen, configuration.release_brake, gettext_noop("its brake was released"))
        messages.success(request, gettext("Brakes that were released: %s") % done)

    def _set_brakes(self, request: HttpRequest, chosen: Any, verb: Callable[[Credential], bool], form: str) -> int:
        """Do it for the credentials that the user may operate, and log it. Returns how many it changed."""
        done = 0
        for login in chosen:
            with transaction.atomic():  # with its entry in the history, or not at all
                if self.may_operate(request, login) and verb(login):
                    self.log_change(request, login, Said(form))
                    done += 1
        return done

    def get_readonly_fields(self, request: HttpRequest, obj: Credential | None = None) -> list[str]:
        return ["vendor"] if obj else []

    def switch_pause(self, request: HttpRequest, login: Any, was: bool, reason: str) -> bool | None:
        if not was:
            return configuration.pause_credential(login, reason)
        if not Credential.objects.filter(pk=login.pk, paused=True).exists():
            return False
        try:
            return configuration.resume_credential(login)[0]
        except NoSecret as error:
            messages.error(request, gettext("It stays paused: %(why)s") % {"why": show(str(error))})
            return None

    def get_urls(self) -> list[Any]:
        wait, receivers = self.admin_site.admin_view(self.try_now), self.admin_site.admin_view(self.receivers)
        return [
            path("<int:pk>/try/", wait, name="vendors_credential_try"),
            path("<int:pk>/check/", self.admin_site.admin_view(self.check_login), name="vendors_credential_check"),
            path("<int:pk>/receivers/", receivers, name="vendors_credential_receivers"),
            *super().get_urls(),
        ]

    def receivers(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the receiving domains that wait, and end a wait by POST."""
        login = get_object_or_404(self.get_queryset(request), pk=pk)
        may_operate = self.may_operate(request, login)
        may_look = may_operate or self.has_view_or_change_permission(request, login)
        if not (may_operate if request.method == "POST" else may_look):
            raise PermissionDenied
        if request.method == "POST":
            receiver, reason = request.POST.get("receiver", ""), request.POST.get("reason", "").strip()
            if deferrals.end_wait(login, receiver, _actor_of(request), reason):
                done = gettext("%(receiver)s is called again, also by campaigns that wait, within a minute.")
                messages.success(request, done % {"receiver": receiver})
            else:
                done = gettext("Nothing was changed: %(receiver)s does not wait any more.")
                messages.error(request, done % {"receiver": receiver})
            return redirect("admin:vendors_credential_receivers", pk)
        waits = deferrals.receiver_waits([pk], deferrals.MOST_LISTED)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Receivers of %s") % login,
            "row": login,
            "opts": self.opts,
            "waits": [(one, show(deferrals.describe_wait(one))) for one in waits],
            "may_operate": may_operate,
        }
        return TemplateResponse(request, "admin/vendors/receivers.html", context)

    @staticmethod
    def _hold_brake(login: Credential) -> str:
        return gettext_noop("its brake was held") if configuration.hold_brake(login) else ""

    @staticmethod
    def _go_on(login: Credential) -> str:
        """Release the brake, or end the wait that the vendor asked for. Returns a sentence; "" if nothing waits."""
        if configuration.release_brake(login):
            return gettext_noop("its brake was released")
        return gettext_noop("the wait that its vendor asked for was ended") if configuration.end_wait(login) else ""

    def try_now(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Call over a credential that waits: asked by GET, done by POST."""
        login = get_object_or_404(self.get_queryset(request), pk=pk)
        if not self.may_operate(request, login):
            raise PermissionDenied
        condition = conditions_of_credentials([pk])[pk]
        title = gettext("Call %s again now") % login
        if request.method != "POST":
            context = {**self.admin_site.each_context(request), "title": title, "row": login, "opts": self.opts}
            context["condition"], context["braked"] = condition_badge(condition), condition.is_braked
            return TemplateResponse(request, "admin/vendors/try.html", context)
        with transaction.atomic():
            done = self._hold_brake(login) if "hold" in request.POST else self._go_on(login)
            if done:
                self.log_change(request, login, Said(done))
        if done:
            messages.success(request, gettext("Done: %s") % gettext(done))
        else:
            messages.error(request, gettext("Nothing was changed: %s does not wait any more.") % login)
        return redirect("admin:vendors_credential_change", pk)

    def check_login(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Log in at the vendor and leave: asked by GET, done by POST."""
        login = get_object_or_404(self.get_queryset(request).select_related("vendor"), pk=pk)
        if not self.may_operate(request, login):
            raise PermissionDenied
        title = gettext("Check the login %s") % login
        if request.method != "POST":
            context = {**self.admin_site.each_context(request), "title": title, "row": login, "opts": self.opts}
            return TemplateResponse(request, "admin/vendors/check_login.html", context)
        found = login_check.check_login(login, _actor_of(request))
        tell = messages.success if found.works else messages.warning if found.works is None else messages.error
        tell(request, capfirst(show(found.sentence)))
        return redirect("admin:vendors_credential_change", pk)

    def hold_fields(self, obj: Any, fields: list[str], by: history.Actor) -> list[str]:
        return second_person.hold_credential(obj, fields, by)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Store a credential. A new one's secret waits for a second person; until then it is paused."""
        if not change and second_person.hold_new_credential(obj, _actor_of(request)):
            messages.warning(request, gettext(HELD))
        else:
            super().save_model(request, obj, form, change)
            if not change and obj.paused:
                _tell_pause(request, obj)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        login: Any = kwargs.get("obj")
        context["changes"] = second_person.open_changes(login.vendor) if login else []
        waits = deferrals.receiver_waits([login.pk], deferrals.MOST_SHOWN) if login else []
        context["waits"] = [show(deferrals.describe_wait(one)) for one in waits]
        if login:
            context |= self._head_facts(request, login)
        return super().render_change_form(request, context, *args, **kwargs)

    @staticmethod
    def _head_facts(request: HttpRequest, login: Credential) -> dict[str, Any]:
        """Return the credential's condition and the reader's remedy, for the head of its page."""
        user: Any = request.user
        condition = conditions_of_credentials([login.pk])[login.pk]
        remedy = remedies.Remedy.of(condition, login.vendor_id, login.vendor.name, login.pk)
        pause = reverse("admin:vendors_credential_pause", args=[login.pk])
        offered = bool(remedy and remedy.is_offered_to(user) and remedy.address not in ("", request.path))
        rows = RateLimit.objects.filter(vendor=login.vendor_id, credential=None)
        return {
            "brief": show(name_condition(condition, write_time)),
            "state": show(describe_condition(condition, write_time)),
            "look": CONDITIONS[condition.kind][1],
            "remedy": remedy,
            "remedy_offered": offered,
            "resumes": offered and remedy is not None and remedy.address == pause,
            "vendor_limits": [_limit_text(row) for row in rows],
            "sees_vendor": user.has_perm("vendors.view_vendor"),
        }

    def store_fields(self, request: HttpRequest, obj: Any, fields: list[str], same_account: bool) -> None:
        others = [name for name in fields if name != "secret"]
        with transaction.atomic():
            locks.lock_vendor(obj.vendor_id)
            if "secret" in fields:
                doubts = 0 if same_account else destinations.count_doubts(obj.vendor, obj)
                configuration.save_secret(obj, obj.secret, _actor_of(request), same_account)
                if configuration.resume_with_secret(obj):
                    self.log_change(request, obj, Said(gettext_noop("resumed")))
                _tell_doubts(request, doubts)
            if others:
                obj.save(update_fields=others)


@admin.register(Mailcaster)
class MailcasterAdmin(OfOwners):
    list_display = ["name", "vendor", choice_column("kind"), "min_size", "max_size", "percentage", "works"]
    list_filter = [("vendor", OfOwnVendors), "kind", "enabled"]
    list_select_related = ["vendor"]

    @admin.display(description=_("state"), ordering="enabled")
    def works(self, caster: Mailcaster) -> SafeString:
        return badge("works", "good") if caster.enabled else badge("off")


if TYPE_CHECKING:  # where alone Django's forms have a parameter
    _PriceForm = forms.ModelForm[Price]
else:
    _PriceForm = forms.ModelForm


class PriceForm(_PriceForm):
    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and "vendor" in cleaned:
            try:
                prices.check_price(Price(**cleaned))
            except prices.NotAPrice as error:
                raise forms.ValidationError(Said("Not added: %(why)s.", why=error)) from None
        return cleaned


@admin.register(Price)
class PriceAdmin(OfOwners, ReadOnly):
    """Prices that have begun never change, so prices are only added. A correction is a new row with a reason."""

    form = PriceForm
    list_display = ["vendor", "credential", "since", "per_unit", "per_message", "currency", "reason", "entered_by"]
    list_filter = [("vendor", OfOwnVendors), "currency"]
    list_select_related = ["vendor", "credential__vendor"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        prices.add_price(obj, history.Actor(request.user.get_username(), request.user.pk))


@admin.register(RateLimit)
class RateLimitAdmin(OfOwners, ReadOnly):
    """All limits in one list. They are edited on the pages of their vendor and credential."""

    list_display = ["vendor", "credential", "limit"]
    list_filter = [("vendor", OfOwnVendors)]
    list_select_related = ["vendor", "credential__vendor"]

    @admin.display(description=_("limit"), ordering="seconds")
    def limit(self, row: RateLimit) -> str:
        return _limit_text(row)


@admin.register(ReceiverDomain)
class ReceiverDomainAdmin(OwnLookups):
    """Groups of receiving domains hold for all vendors, so only users who see all sponsors may read or change them."""

    form = ReceiverDomainForm
    list_display = ["domain", "receiver"]
    list_filter = ["receiver"]
    search_fields = ["domain"]

    def get_readonly_fields(self, request: HttpRequest, obj: ReceiverDomain | None = None) -> list[str]:
        return ["domain"] if obj else []

    def has_module_permission(self, request: HttpRequest) -> bool:
        return super().has_module_permission(request) and self._may_govern(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_view_permission(request, obj) and self._may_govern(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and self._may_govern(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self._may_govern(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and self._may_govern(request)

    @staticmethod
    def _may_govern(request: HttpRequest) -> bool:
        return owned_vendors(request.user) is None

    def save_model(self, request: HttpRequest, obj: ReceiverDomain, form: Any, change: bool) -> None:
        """Store the row by the one function; it keeps the history, so the admin's own entries are left out."""
        receiver_domains.put_domain(form.cleaned_data["domain"], obj.receiver, _actor_of(request))
        stored = ReceiverDomain.objects.get(domain=form.cleaned_data["domain"])
        obj.pk, obj.domain, obj._state.adding = stored.pk, stored.domain, False
        _tell_idle_limits(request)

    def delete_model(self, request: HttpRequest, obj: ReceiverDomain) -> None:
        receiver_domains.remove_domain(obj.domain, _actor_of(request))
        _tell_idle_limits(request)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ReceiverDomain]) -> None:
        for row in queryset:
            receiver_domains.remove_domain(row.domain, _actor_of(request))
        _tell_idle_limits(request)

    def log_addition(self, *args: Any) -> Any:
        return None

    def log_change(self, *args: Any) -> Any:
        return None

    def log_deletions(self, *args: Any) -> Any:
        return None


@admin.register(Usage)
class UsageAdmin(OfOwners, ReadOnly):
    """The ledger of calls. The throttle's log is rebuilt from it, and the audit of P4 reads it."""

    list_display = ["at", "vendor_id", "credential_id", "units", "until"]
    ordering = ["-id"]
    sortable_by = ()


@admin.register(VendorChange)
class VendorChangeAdmin(OfOwners, ReadOnly):
    """Changes that wait for a second person, with the decisions."""

    list_display = ["what", "asked_name", "asked_at", choice_column("outcome"), "decided_by", "decided_at"]
    list_filter = [("vendor", OfOwnVendors), "outcome"]
    list_select_related = ["vendor", "credential__vendor"]
    fields = ["vendor", "credential", "asked_name", "asked_at", "outcome", "decided_by", "decided_at"]
    sortable_by = ()

    @admin.display(description=_("change"))
    def what(self, change: VendorChange) -> str:
        return str(change)

    def get_urls(self) -> list[Any]:
        decide = self.admin_site.admin_view(self.decide)
        return [path("<int:pk>/decide/", decide, name="vendors_vendorchange_decide"), *super().get_urls()]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        change: Any = kwargs.get("obj")
        user: Any = request.user
        waits = bool(change) and not change.outcome
        context |= {
            "lines": second_person.show_change(change) if waits else [],
            "waits": waits,
            "may_confirm": waits and second_person.may_confirm(change, user),
            "mine": waits and change.asked_by_id == user.pk,
            "doubts": destinations.count_doubts(change.vendor, change.credential) if waits else 0,
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def decide(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Confirm the change, or close it without making it. POST."""
        change = get_object_or_404(self.get_queryset(request), pk=pk)
        if request.method != "POST" or not request.user.has_perm(second_person.RIGHT):
            raise PermissionDenied
        user: Any = request.user
        try:
            if request.POST.get("decision") == "confirm":
                for login in second_person.confirm_change(pk, user):
                    _tell_pause(request, login)
                messages.success(request, gettext("%s is made.") % change)
            else:
                second_person.refuse_change(pk, user)
                messages.success(request, gettext("%s is not made.") % change)
        except second_person.CannotConfirm as why:
            messages.error(request, gettext(str(why)))
        return redirect("admin:vendors_vendorchange_change", pk)

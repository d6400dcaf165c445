"""The last step: shows the content, time, cost and sender of the mail; then sends."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from campaigns.doors import labels
from campaigns.doors.browser_zones import find_zone, known_zones
from campaigns.doors.who_may import name_users
from campaigns.engine.dispatch import nightly
from campaigns.engine.ports import NotEntitled
from campaigns.lists import estimates
from campaigns.lists.drafts import contents, keeping, sending
from campaigns.lists.drafts.keeping import WHEN, Stale
from campaigns.lists.intake import BadInput
from campaigns.lists.pages import preview
from campaigns.lists.pages.drafts import LABELS, check_soon, draft_step, render_step, send_now, show_conflict
from campaigns.models import Draft
from campaigns.models.approvals import APPROVE
from campaigns.models.campaigns import needs_approval
from campaigns.reporting.forecast.obstacles import Obstacle
from campaigns.texts.signs import knows_fonts
from campaigns.texts.templates import TemplateError
from vendors import said
from vendors.instants import check_instant, shown_by_clock
from vendors.models import Vendor

MINUTES = "%Y-%m-%dT%H:%M"


class ClockField(forms.DateTimeField):
    """A local time as typed; its zone is another field."""

    def to_python(self, value: Any) -> Any:
        return None if value in self.empty_values else forms.fields.BaseTemporalField.to_python(self, value)


class WhenForm(forms.Form):
    """The form for the time to send a draft. `chosen_values` are the draft's fields."""

    when = forms.ChoiceField(
        choices=[
            ("now", gettext_lazy("Now")),
            ("nightly", gettext_lazy("Tonight")),
            ("at", gettext_lazy("At a time")),
        ],
        widget=forms.RadioSelect,
        label=LABELS["when"],
    )
    send_at = ClockField(
        required=False,
        label=LABELS["send_at"],
        input_formats=[MINUTES, f"{MINUTES}:%S"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=MINUTES),
    )
    which = forms.ChoiceField(
        required=False,
        choices=[
            ("", "—"),
            ("0", gettext_lazy("the first time, before the clock is put back")),
            ("1", gettext_lazy("the second time, after it")),
        ],
        label=gettext_lazy("Which of the two?"),
    )
    hours_from = forms.TimeField(required=False, widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))
    hours_to = forms.TimeField(required=False, widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))
    hours_of_each = forms.BooleanField(required=False, label=LABELS["hours_of_each"])
    time_zone = forms.CharField(
        max_length=64, label=LABELS["time_zone"], widget=forms.TextInput(attrs={"list": "zones"})
    )
    first = forms.IntegerField(required=False, min_value=1, max_value=1_000_000_000, label=LABELS["first"])

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        if data.get("when") == "at" and not data.get("send_at") and "send_at" not in self.errors:
            self.add_error("send_at", _("Say at which time."))
        if (data.get("hours_from") is None) != (data.get("hours_to") is None):
            self.add_error("hours_to", _("The hours have a start and an end, or neither."))
        if data.get("time_zone") and data["time_zone"] not in known_zones():
            self.add_error("time_zone", _("This is no time zone. Write it like Europe/London."))
        if data.get("when") == "at" and data.get("send_at") and "time_zone" not in self.errors:
            self._read_clock(data)
        if data.get("hours_of_each") and not data.get("hours_from") and "hours_from" not in self.errors:
            self.add_error("hours_from", _("Say which hours."))
        return data

    def _read_clock(self, data: dict[str, Any]) -> None:
        """Convert `send_at` to a moment; ask if clocks in the zone skip that time or show it twice."""
        found = shown_by_clock(data["send_at"], ZoneInfo(data["time_zone"]))
        if not found:
            self.add_error("send_at", _("The clocks there skip this time: choose another one."))
        elif len(found) > 1 and not data.get("which"):
            self.add_error("which", _("The clocks there show this time twice on that day."))
        else:
            try:
                data["send_at"] = check_instant(found[int(data.get("which") or 0) if len(found) > 1 else 0])
            except ValueError:
                self.add_error("send_at", self.fields["send_at"].error_messages["invalid"])

    @property
    def chosen_values(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {
            "when": data["when"],
            "send_at": data["send_at"] if data["when"] == "at" else None,
            "hours_from": data["hours_from"],
            "hours_to": data["hours_to"],
            "hours_of_each": data["hours_of_each"],
            "time_zone": data["time_zone"],
            "first": data["first"],
        }


def _initial_times(draft: Draft, zone: str) -> dict[str, Any]:
    known = draft.time_zone or zone
    at = draft.send_at.astimezone(ZoneInfo(known)).replace(tzinfo=None) if draft.send_at else None
    which = str(at.fold) if at and len(shown_by_clock(at, ZoneInfo(known))) > 1 else ""
    names = ("when", "hours_from", "hours_to", "hours_of_each", "first")
    return {"send_at": at, "which": which, "time_zone": known, **{name: getattr(draft, name) for name in names}}


@draft_step
def show_check(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Show a summary of the campaign before it is sent."""
    return _render_check(request, draft, None)


def _render_check(request: HttpRequest, draft: Draft, form: WhenForm | None, error: str = "") -> HttpResponse:
    vendor = _vendor_of_draft(draft)
    zone = vendor.time_zone if vendor and find_zone(request) is None else timezone.get_current_timezone_name()
    obstacle = sending.sending_obstacle(draft)
    facts: dict[str, Any] = draft.found or {}
    context: dict[str, Any] = {
        "facts": facts,
        "form": form or WhenForm(initial=_initial_times(draft, zone)),
        "obstacle": obstacle,
        "error": error or draft.why_failed,
        "vendor": vendor,
        "night": _vendor_night(vendor) if vendor else None,
        "zones": sorted(known_zones()),
        "files": keeping.list_draft_files(draft),
        "template": contents.template_of_draft(draft),
        "seen": request.POST.get("seen") or draft.seen,
        "goes": facts.get("good", 0) - facts.get("suppressed", 0),
        # no rows: the list as a whole is bad; with an obstacle, its bad rows are not left out yet
        "left_out": facts.get("total", 0) if facts.get("rows") and not obstacle else 0,
        "asks": needs_approval(draft.sponsor.approval_above, facts.get("good", 0)),
    }
    if facts.get("good"):
        context |= preview.letter_context(request, draft, 1)
        try:
            context["identity"] = contents.identity_of_draft(draft, vendor) if vendor else None
            now = timezone.now()
            context["quotas"] = [said.show(one.sentence) for one in sending.foresee_quotas(draft)]
            context["floor"] = said.show(contents.warn_of_floor(draft))
            costs = contents.estimate_draft(draft).items()
            context |= _find_obstacle(request, [one.end.obstacle for _name, one in costs if one])
            context["units"] = _units_per_message(facts)
            context["fonts"] = vendor is not None and draft.channel == "print" and knows_fonts(vendor.adapter)
            context["costs"] = [(name, one.describe_cost() if one else estimates.NOT_KNOWN) for name, one in costs]
            context["calls"] = [(name, one.describe_time(now)) for name, one in costs if one]
            if any(one and one.end.ends_at and not one.end.obstacle for _name, one in costs):
                context["zone_of_calls"] = timezone.get_current_timezone_name()
        except preview.FAULTS as fault:
            context["obstacle"] = str(fault)
    if context["asks"]:
        context["must_approve"] = _name_approvers(draft, request.user)
    return render_step(request, "check", draft, context | _announce_effect(draft, context))


def _announce_effect(draft: Draft, context: dict[str, Any]) -> dict[str, str]:
    """Return the page's heading and its button, which state the effect of pressing it.

    first_heading, first_button: the same if only the first ones are sent, with # for their number.
    """
    names = {"messages": name_messages(draft.channel, context["goes"]), "first": "#"}
    if context["obstacle"] or not context["goes"]:
        return {"heading": _("Nothing can be sent yet."), "button": _("Send %(messages)s") % names}
    if context["asks"]:
        heading, button = _("You ask for approval to send %(messages)s."), _("Ask for approval to send %(messages)s")
        return {"heading": heading % names, "button": button % names}
    if remedy := context.get("remedy"):
        heading = _("You will send %(messages)s as soon as %(vendor)s can.")
        button = _("Send %(messages)s as soon as %(vendor)s can")
        names["vendor"] = remedy.name
        return {"heading": heading % names, "button": button % names}
    first = {
        "first_heading": _("You will send the first %(first)s of %(messages)s.") % names,
        "first_button": _("Send the first %(first)s of %(messages)s") % names,
    }
    all_of_them = {
        "all_heading": _("You will send %(messages)s.") % names,
        "all_button": _("Send %(messages)s") % names,
    }
    shown = all_of_them["all_heading"], all_of_them["all_button"]
    if draft.first and draft.first < context["goes"]:
        number = labels.format_number(draft.first)
        shown = first["first_heading"].replace("#", number), first["first_button"].replace("#", number)
    return {"heading": shown[0], "button": shown[1], **first, **all_of_them}


def name_messages(channel: str, many: int) -> str:
    """Format a number of messages of a channel by their everyday name: 9,993 e-mails."""
    shown = {"shown": labels.format_number(many)}
    if channel == Vendor.Channel.SMS:
        return ngettext("%(shown)s SMS", "%(shown)s SMS messages", many) % shown
    if channel == Vendor.Channel.PRINT:
        return ngettext("%(shown)s letter", "%(shown)s letters", many) % shown
    return ngettext("%(shown)s e-mail", "%(shown)s e-mails", many) % shown


def _name_approvers(draft: Draft, user: Any) -> str:
    """Say who must approve the campaign before anything of it is sent."""
    form, nobody = (
        _("%(names)s must approve it before anything is sent."),
        _("Another person has to approve it before anything is sent."),
    )
    return name_users(draft.sponsor_id, APPROVE, form, user.pk, nobody)


def _find_obstacle(request: HttpRequest, found: list[Obstacle | None]) -> dict[str, Any]:
    """Return why nothing would be sent now, if that holds of each vendor that may send it, and what can be done."""
    obstacles = [one for one in found if one]
    if not obstacles or len(obstacles) < len(found):
        return {}
    remedy = next((one.remedy for one in obstacles if one.remedy), None)
    return {
        "waits": obstacles[0].reason_for_owner,
        "remedy": remedy,
        "offered": remedy and remedy.is_offered_to(request.user),
    }


def _units_per_message(facts: dict[str, Any]) -> tuple[int, int] | None:
    """Return the units of the cheapest and the dearest message, if units are not messages."""
    found = [one for one in facts.get("weights", {}).values() if one and not one["counts_messages"]]
    return (min(one["least"] for one in found), max(one["most"] for one in found)) if found else None


def _vendor_of_draft(draft: Draft) -> Vendor | None:
    try:
        return contents.logins_of_draft(draft)[0].vendor
    except NotEntitled:
        return None


def _vendor_night(vendor: Vendor) -> tuple[str, datetime] | None:
    """Return the vendor's next night: its name, and its beginning in the reader's zone."""
    now = timezone.now()
    found = nightly.find_next_night(vendor, (), now)
    if found is None:
        return None
    at = timezone.localtime(found.at)
    ahead = (at.date() - timezone.localtime(now).date()).days
    if ahead > 1:
        return _("The night of %(day)s") % {"day": formats.date_format(at, "l")}, at
    return _("Tomorrow night") if ahead == 1 else _("Tonight"), at


@require_POST
@draft_step
def send_draft(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Send the draft, or only save its time. A repeat leads to the same campaign."""
    form = WhenForm(request.POST)
    if not form.is_valid():
        return _render_check(request, draft, form)
    seen = request.POST.get("seen", "")
    try:
        if "stay" in request.POST:
            check_soon(keeping.save(draft, WHEN, seen, form.chosen_values))
            messages.success(request, _("It is kept."))
            return redirect("draft_check", draft.pk)
        draft = sending.start_sending(draft, seen, form.chosen_values, request.user)
    except Stale as stale:
        return _show_stale(request, stale.draft, seen, form)
    except (BadInput, TemplateError, NotEntitled) as error:
        fresh = keeping.load_draft(draft.pk)
        check_soon(fresh)
        messages.error(request, said.show(str(error)))
        return redirect("draft_check", draft.pk)
    send_now(draft)
    return redirect("draft_sent", draft.pk)


def _show_stale(request: HttpRequest, stored: Draft, seen: str, form: WhenForm) -> HttpResponse:
    """Show the draft again, because another window has changed its time or content."""
    if keeping.seen_revision(seen, WHEN) != stored.when_revision and any(
        getattr(stored, name) != value for name, value in form.chosen_values.items()
    ):
        return show_conflict(request, stored, WHEN, form.chosen_values)
    messages.warning(request, _("Nothing was sent: another window has changed this campaign. Look at it once more."))
    return redirect("draft_check", stored.pk)

"""Pages of a sponsor's webhooks, with their calls: add, rotate, switch on and off, remove, post again."""

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from campaigns import tasks
from campaigns.doors import once
from campaigns.doors.access import deciding_actor, owners_page
from campaigns.integrations.webhooks import events
from campaigns.models import Sponsor, Webhook, WebhookCall
from campaigns.models.api_clients import Event
from campaigns.models.campaigns import sponsors_of
from vendors.instants import check_instant
from vendors.said import Said, gettext_noop
from vendors.webhook_http import Forbidden

EACH_PAGE = 50
SEE = "campaigns.see_recipients"  # events name recipients, wherever they are posted
LOOK, ADD = "campaigns.view_webhook", "campaigns.add_webhook"
CHANGE, DELETE = "campaigns.change_webhook", "campaigns.delete_webhook"


class WebhookForm(forms.Form):
    """The form of a webhook: its address and events."""

    sponsor = forms.ModelChoiceField(Sponsor.objects.none(), label=gettext_lazy("Sponsor"), empty_label=None)
    url = forms.URLField(
        label=gettext_lazy("Address"),
        max_length=500,
        assume_scheme="https",
        help_text=gettext_lazy("Beginning with https, reachable in the public network"),
    )
    test = forms.BooleanField(label=gettext_lazy("For the test: only events of what test keys send"), required=False)
    events = forms.MultipleChoiceField(
        label=gettext_lazy("Events"), choices=[(one, one) for one in Event.values], initial=list(Event.values),
        widget=forms.CheckboxSelectMultiple
    )  # fmt: skip

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["sponsor"]
        field.queryset = Sponsor.objects.of_sponsors(sponsors_of(user))


def visible_webhook(request: HttpRequest, pk: int) -> Webhook:
    """Return the webhook, if it belongs to the user's sponsors. Raises Http404."""
    rows = Webhook.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor")
    return get_object_or_404(rows, pk=pk)


@owners_page(LOOK)
@require_GET
def list_webhooks_page(request: HttpRequest) -> HttpResponse:
    """Show the webhooks of the user's sponsors."""
    rows = Webhook.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor").defer("secret")
    some = Paginator(rows.order_by("sponsor__name", "pk"), EACH_PAGE).get_page(request.GET.get("page"))
    return render(request, "owners/webhooks/list.html", {"webhooks": some.object_list, "page": some})


@owners_page(ADD, SEE)
@require_http_methods(["GET", "POST"])
def add_webhook(request: HttpRequest) -> HttpResponse:
    """Add a webhook and show its secret, once."""
    form = WebhookForm(request.POST or None, user=request.user)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            secret = events.secret_of(once.derive_from_form(request, "webhook"))
            row, secret = events.add_program_webhook(
                given["sponsor"].pk, given["url"], given["events"], given["test"], deciding_actor(request), secret
            )
            return _show_secret(request, row, secret, _("The webhook is added."))
        except Forbidden as error:
            form.add_error("url", str(error))
        except events.TooMany as error:
            form.add_error(None, str(error))
        except once.FormTooOld:
            form.add_error(None, str(once.TOO_OLD))
    facts = {"form": form, "once": once.make_form_token()}
    return render(request, "owners/webhooks/add.html", facts, status=422 if form.errors else 200)


def _show_secret(request: HttpRequest, row: Webhook, secret: str, said: str) -> HttpResponse:
    return render(request, "owners/webhooks/secret.html", {"webhook": row, "secret": secret, "said": said})


@owners_page(LOOK, "campaigns.view_webhookcall")
@require_GET
def show_webhook(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a webhook with its calls, latest first."""
    row = visible_webhook(request, pk)
    before = request.GET.get("before", "")
    calls = WebhookCall.objects.filter(webhook=row).defer("body").order_by("-pk")
    if before.isdecimal() and len(before) < 19:
        calls = calls.filter(pk__lt=int(before))
    some = list(calls[: EACH_PAGE + 1])
    facts = {
        "webhook": row,
        "calls": some[:EACH_PAGE],
        "older": some[EACH_PAGE - 1].pk if len(some) > EACH_PAGE else None,
        "before": before,
        "once": once.make_form_token(),
    }
    return render(request, "owners/webhooks/webhook.html", facts)


@owners_page(CHANGE, SEE)
@require_POST
def redeliver_event(request: HttpRequest, pk: int, call: int) -> HttpResponse:
    """Post an event again, with the same id. The form names the state seen, so that a second press changes nothing."""
    row = visible_webhook(request, pk)
    found = get_object_or_404(WebhookCall.objects.filter(webhook=row), pk=call)
    if not row.enabled:
        messages.error(request, _("The webhook is switched off, so nothing is posted. Switch it on first."))
    elif events.repeat_call(found.pk, deciding_actor(request), _seen_state(request)):
        tasks.notify_webhooks()
        messages.success(request, _("The event is being posted again, with ten tries."))
    else:
        messages.warning(request, _("Nothing was changed: it has been tried again since you saw it."))
    return redirect("webhook", pk)


def _seen_state(request: HttpRequest) -> tuple[int, datetime | None]:
    """Return the tries and the time of acceptance that the form names. Raises Http404."""
    tries, taken = request.POST.get("tries", ""), request.POST.get("taken", "")
    if not (tries.isdecimal() and len(tries) < 6):
        raise Http404
    try:
        return int(tries), check_instant(datetime.fromisoformat(taken)) if taken else None
    except ValueError:
        raise Http404 from None


@owners_page(CHANGE, SEE)
@require_POST
def rotate_secret(request: HttpRequest, pk: int) -> HttpResponse:
    """Make a new secret, shown once; the old one also signs for another day."""
    row = visible_webhook(request, pk)
    try:
        secret = events.rotate_secret(
            row.pk, deciding_actor(request), events.secret_of(once.derive_from_form(request, f"webhook {pk}"))
        )
    except once.FormTooOld:
        messages.error(request, once.TOO_OLD)
        return redirect("webhook", pk)
    said = _("The webhook has a new secret. For a day each event is signed with the old and with the new one.")
    return _show_secret(request, row, secret, said)


@owners_page(CHANGE, SEE)
@require_POST
def switch_webhook(request: HttpRequest, pk: int) -> HttpResponse:
    """Switch on or off, as the form says, so that a second press changes nothing."""
    row = visible_webhook(request, pk)
    if request.POST.get("to") == "on":
        events.enable_webhook(row, deciding_actor(request))
        messages.success(request, _("Events are posted from now on. What had been waiting is posted by “Post again”."))
    elif row.enabled:
        events.disable_webhook(row, Said(gettext_noop("by hand")), deciding_actor(request))
        messages.success(request, _("No event is posted any more."))
    return redirect("webhook", pk)


@owners_page(DELETE)
@require_POST
def remove_webhook(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a webhook with the record of its calls, after confirmation."""
    row = visible_webhook(request, pk)
    if "confirmed" not in request.POST:
        return render(request, "owners/webhooks/remove.html", {"webhook": row})
    events.remove_webhook(row.pk, deciding_actor(request))
    messages.success(request, _("The webhook is removed."))
    return redirect("webhooks")

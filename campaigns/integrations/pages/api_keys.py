"""Pages of sponsors' API keys: make one, which is shown once; extend, revoke."""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Case, Q, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from campaigns.doors import once
from campaigns.doors.access import deciding_actor, owners_page
from campaigns.doors.front import keys
from campaigns.models import ApiKey, Sponsor
from campaigns.models.campaigns import sponsors_of

EACH_PAGE = 50
LOOK, ADD, CHANGE = "mailhub.view_apikey", "mailhub.add_apikey", "mailhub.change_apikey"
# The permissions behind each scope: a key can do no more than its maker.
NEEDS: dict[str, tuple[str, ...]] = {
    ApiKey.Scope.SEND: ("campaigns.add_campaign",),
    ApiKey.Scope.READ: ("campaigns.view_campaign", "campaigns.see_recipients"),
    ApiKey.Scope.OPS: (
        "campaigns.change_job",
        "campaigns.change_suppression",
        "campaigns.change_webhook",
        "campaigns.see_recipients",  # webhooks name recipients
    ),
}
SAYS = {
    ApiKey.Scope.SEND: gettext_lazy("send: hand in messages, upload files, add templates"),
    ApiKey.Scope.READ: gettext_lazy("read: what became of messages, who is suppressed, what it costs"),
    ApiKey.Scope.OPS: gettext_lazy("ops: stop, retry, pause; suppress and lift; webhooks"),
}
LIVES = (
    ("30", gettext_lazy("in 30 days")),
    ("90", gettext_lazy("in 90 days")),
    ("365", gettext_lazy("in a year")),
    ("", gettext_lazy("never")),
)


def scopes_of(user: Any) -> list[str]:
    """Return the scopes that this user may give to a key."""
    return [str(scope) for scope, needed in NEEDS.items() if user.has_perms(needed)]


class KeyForm(forms.Form):
    """The form of a new key: its sponsor and scopes."""

    sponsor = forms.ModelChoiceField(Sponsor.objects.none(), label=gettext_lazy("Sponsor"), empty_label=None)
    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"),
        choices=(
            ("test", gettext_lazy("Test: reaches sandbox vendors only")),
            ("live", gettext_lazy("Live: reaches real recipients")),
        ),
    )
    scopes = forms.MultipleChoiceField(label=gettext_lazy("It may"), widget=forms.CheckboxSelectMultiple)
    days = forms.ChoiceField(label=gettext_lazy("It expires"), choices=LIVES, initial="365", required=False)

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        sponsor: Any = self.fields["sponsor"]
        sponsor.queryset = Sponsor.objects.of_sponsors(sponsors_of(user))
        scopes: Any = self.fields["scopes"]
        scopes.choices = [(scope, SAYS[ApiKey.Scope(scope)]) for scope in scopes_of(user)]


def visible_key(request: HttpRequest, pk: int) -> ApiKey:
    """Return the key, if it belongs to the user's sponsors. Raises Http404."""
    rows = ApiKey.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor")
    return get_object_or_404(rows, pk=pk)


@owners_page(LOOK)
@require_GET
def list_keys_page(request: HttpRequest) -> HttpResponse:
    """Show the keys of the user's sponsors, valid ones first; only the beginning of a key is stored."""
    now = timezone.now()
    rows = ApiKey.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor").defer("digest")
    over = Case(When(Q(revoked_at__lte=now) | Q(expires_at__lte=now), then=1), default=0)
    some = Paginator(rows.order_by(over, "-pk"), EACH_PAGE).get_page(request.GET.get("page"))
    allowed = set(scopes_of(request.user))
    shown: list[Any] = list(some.object_list)
    for row in shown:
        row.valid = row.is_valid(now)
        row.word, row.look = _key_state(row)
        row.extendable = row.valid and row.expires_at is not None and allowed.issuperset(row.scopes)
    facts = {"keys": shown, "page": some, "lives": LIVES, "may_make": bool(allowed)}
    return render(request, "owners/keys/list.html", facts)


def _key_state(row: Any) -> tuple[str, str]:
    if row.valid:
        return _("Valid"), "good"
    return (_("Revoked"), "idle") if row.revoked_at else (_("Expired"), "warn")


@owners_page(ADD)
@require_http_methods(["GET", "POST"])
def make_key(request: HttpRequest) -> HttpResponse:
    """Make a key and show it, once."""
    form = KeyForm(request.POST or None, user=request.user, initial={"scopes": ["send", "read"]})
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            derived = once.derive_from_form(request, "api key")
            made = keys.create_key(
                given["sponsor"],
                given["kind"],
                given["scopes"],
                _end_of_life(given["days"]),
                None,
                deciding_actor(request),
                derived,
            )
            return render(request, "owners/keys/made.html", {"key": made[0], "token": made[1]})
        except once.FormTooOld:
            form.add_error(None, str(once.TOO_OLD))
    facts = {"form": form, "once": once.make_form_token()}
    return render(request, "owners/keys/make.html", facts, status=422 if form.errors else 200)


def _end_of_life(days: str) -> datetime | None:
    return timezone.now() + timedelta(days=int(days)) if days else None


@owners_page(CHANGE)
@require_POST
def extend_on_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Change the end of a valid key that the user could have made."""
    row, days = visible_key(request, pk), request.POST.get("days", "")
    if days not in dict(LIVES):
        return redirect("keys")
    if not set(scopes_of(request.user)).issuperset(row.scopes):
        raise PermissionDenied
    if keys.extend_key(row, _end_of_life(days), deciding_actor(request)):
        messages.success(request, _("The key %(prefix)s has another end.") % {"prefix": row.prefix})
    else:
        messages.error(request, _("%(prefix)s is not valid any more: make a new key.") % {"prefix": row.prefix})
    return redirect("keys")


@owners_page(CHANGE)
@require_POST
def revoke_on_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Revoke a key for good, after confirmation."""
    row = visible_key(request, pk)
    if "confirmed" not in request.POST:
        return render(request, "owners/keys/revoke.html", {"key": row})
    keys.revoke_key(row, deciding_actor(request))
    messages.success(request, _("The key %(prefix)s is revoked.") % {"prefix": row.prefix})
    return redirect("keys")

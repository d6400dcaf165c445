"""Pages of a sponsor's suppressions: look up, add, lift, import, export."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods

from campaigns.doors import labels
from campaigns.doors.access import deciding_actor, owners_page
from campaigns.doors.downloads import download_file
from campaigns.lists.intake import AddressReader
from campaigns.lists.intake.suppression_file import suppression_lines
from campaigns.models import Sponsor, Suppression
from campaigns.models.campaigns import sponsor_ids_of, sponsors_of
from campaigns.suppression import suppressing
from campaigns.suppression.admin.suppression_import import ImportForm, import_sentence
from campaigns.suppression.lists import NewSuppression
from campaigns.texts.given_texts import given_address
from vendors.models import Vendor

EACH_PAGE = 100
LOOK, ADD, CHANGE = "campaigns.view_suppression", "campaigns.add_suppression", "campaigns.change_suppression"
SEE = "campaigns.see_recipients"
MOST_FOUND = 200  # suppressions of one address


class AddForm(forms.Form):
    """The form of an address to suppress for a sponsor."""

    sponsor = forms.ModelChoiceField(Sponsor.objects.none(), label=gettext_lazy("Sponsor"), empty_label=None)
    channel = forms.ChoiceField(
        label=gettext_lazy("Channel"), choices=labels.form_choices(Vendor.Channel), initial="email"
    )
    address = forms.CharField(label=gettext_lazy("Address or phone number"), max_length=2000)
    reason = forms.ChoiceField(
        label=gettext_lazy("Reason"),
        choices=labels.form_choices(Suppression.Reason),
        initial=Suppression.Reason.BY_HAND,
    )
    source = forms.CharField(
        label=gettext_lazy("Where it comes from"),
        max_length=200,
        required=False,
        help_text=gettext_lazy("Like: letter of 3 May. Empty: your user name"),
    )

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["sponsor"]
        field.queryset = Sponsor.objects.of_sponsors(sponsors_of(user))

    def clean(self) -> dict[str, Any]:
        """Normalise the address for its channel."""
        cleaned = super().clean() or {}
        if {"sponsor", "channel", "address"} <= cleaned.keys():
            try:
                normal = AddressReader(cleaned["channel"], cleaned["sponsor"].phone_region)
                cleaned["address"] = normal(cleaned["address"])
            except ValueError as error:
                self.add_error("address", str(error))
        return cleaned


@owners_page(LOOK)
@require_http_methods(["GET", "POST"])
def list_suppressions_page(request: HttpRequest) -> HttpResponse:
    """Show suppressions of the user's sponsors, latest first, or those of one address.

    The address is posted, because logs contain URLs, and must be complete.
    """
    # Sponsors as numbers: the planner cannot estimate a subquery and would sort all rows.
    mine = Suppression.objects.of_sponsors(sponsor_ids_of(request.user)).select_related("sponsor", "topic__sponsor")
    looked_up = given_address(request.POST.get("address", ""))[:2000]
    before = request.GET.get("before", "")
    if looked_up:
        regions = Sponsor.objects.of_sponsors(sponsors_of(request.user)).values_list("phone_region", flat=True)
        regions = regions.distinct()
        rows, size = suppressing.suppressions_of_text(mine, looked_up, regions), MOST_FOUND
    else:
        rows, size = mine, EACH_PAGE
        if before.isdecimal() and len(before) < 19:
            rows = rows.filter(pk__lt=int(before))
    some = list(rows.order_by("-pk")[: size + 1])
    seen, now = labels.sees_recipients(request.user), timezone.now()
    shown = [_show_row(row, seen, now) for row in some[:size]]
    older = some[size - 1].pk if len(some) > size else None
    facts = {"rows": shown, "older": older, "before": before, "looked_up": looked_up}
    return render(request, "owners/suppressions/list.html", facts)


def _show_row(row: Any, seen: bool, now: Any) -> Any:
    row.shown = labels.format_recipient(row.address, seen) if row.address else _("erased")
    row.holds = row.until is None or row.until > now
    return row


@owners_page(ADD)
@require_http_methods(["GET", "POST"])
def suppress_on_page(request: HttpRequest) -> HttpResponse:
    """Suppress an address; running campaigns leave it out from their next call on."""
    form = AddForm(request.POST or None, user=request.user)
    if request.method == "POST" and form.is_valid():
        given, by = form.cleaned_data, deciding_actor(request)
        new = NewSuppression(given["address"], given["reason"], given["source"] or by.name)
        added = suppressing.add_and_record(given["sponsor"].pk, given["channel"], [new], by)
        messages.success(request, _("Nothing more is sent there.") if added else _("It was suppressed already."))
        return redirect("suppressions")
    return render(request, "owners/suppressions/add.html", {"form": form}, status=422 if form.errors else 200)


@owners_page(CHANGE)
@require_http_methods(["GET", "POST"])
def lift_on_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Lift a suppression. Asks for a reason, which the history keeps."""
    rows = Suppression.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor", "topic__sponsor")
    row = get_object_or_404(rows, pk=pk)
    if row.sponsor is None and not request.user.has_perms(["campaigns.suppress_for_all"]):
        raise PermissionDenied
    reason = request.POST.get("reason", "").replace("\0", "").strip()[:255]
    if request.method == "POST" and reason:
        lifted = suppressing.lift_and_record([row.pk], deciding_actor(request), reason)
        said = _("Lifted. What it has kept back is sent when somebody retries the campaign.")
        messages.success(request, said if lifted else _("It did not hold any more."))
        return redirect("suppressions")
    shown = _show_row(row, labels.sees_recipients(request.user), timezone.now())
    facts = {"row": shown, "missing": request.method == "POST"}
    return render(request, "owners/suppressions/lift.html", facts, status=422 if facts["missing"] else 200)


@owners_page(ADD)
@require_http_methods(["GET", "POST"])
def import_file(request: HttpRequest) -> HttpResponse:
    """Suppress the addresses of a file; a bad file stores nothing."""
    posted = (request.POST, request.FILES) if request.method == "POST" else ()
    mine = Sponsor.objects.of_sponsors(sponsors_of(request.user))
    form = ImportForm(*posted, sponsors=mine, for_all=False)
    if not form.is_valid() or form.rows is None:
        status = 422 if request.method == "POST" else 200
        return render(request, "owners/suppressions/import.html", {"form": form}, status=status)
    given = form.cleaned_data
    added = suppressing.add_and_record(given["sponsor"].pk, given["channel"], form.rows, deciding_actor(request))
    messages.success(request, import_sentence(added, len(form.rows) - added))
    return redirect("suppressions")


@owners_page(LOOK, SEE)
@require_GET
def export_suppressions(request: HttpRequest) -> Any:
    """Download the suppressions that hold for a channel and sponsor, as CSV for a later import."""
    mine = Sponsor.objects.of_sponsors(sponsors_of(request.user))
    sponsor_id = request.GET.get("sponsor", "")
    sponsor = get_object_or_404(mine, pk=int(sponsor_id) if sponsor_id.isdecimal() and len(sponsor_id) < 19 else 0)
    channel = request.GET.get("channel", "")
    if channel not in Vendor.Channel.values:
        raise Http404
    rows = suppressing.held_suppressions().filter(sponsor=sponsor, channel=channel)
    return download_file(_encode_lines(suppression_lines(rows)), f"suppressions-{channel}.csv")


def _encode_lines(some: Iterator[str]) -> Iterator[bytes]:
    """Yield blocks of lines: single lines would cost more than they contain."""
    block: list[str] = []
    for line in some:
        block.append(line)
        if len(block) == 500:
            yield "".join(block).encode()
            block = []
    yield "".join(block).encode()


@owners_page(LOOK, SEE)
@require_GET
def choose_export(request: HttpRequest) -> HttpResponse:
    """Ask for the sponsor and channel to export."""
    mine = Sponsor.objects.of_sponsors(sponsors_of(request.user))[:500]
    return render(
        request, "owners/suppressions/export.html", {"sponsors": mine, "channels": labels.form_choices(Vendor.Channel)}
    )

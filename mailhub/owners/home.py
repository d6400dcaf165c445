"""An owner's first page: the newest campaigns, and how far they are."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from campaigns import labels, progress
from campaigns.models import Campaign
from campaigns.models.campaigns import sponsors_of
from mailhub.owners.access import page

NEWEST = 50


@page()
def index(request: HttpRequest) -> HttpResponse:
    """The newest campaigns of the user's sponsors."""
    found: list[Any] = list(
        Campaign.objects.of_sponsors(sponsors_of(request.user))
        .select_related("sponsor")
        .only("id", "name", "size", "created_at", "sponsor__name")[:NEWEST]
    )
    sums = progress.of_campaigns([campaign.pk for campaign in found])
    for campaign in found:
        campaign.sums = sums[campaign.pk]
        campaign.label = labels.of_sum(campaign.sums)
    return render(request, "owners/home.html", {"campaigns": found})

"""URLs of owners' pages about a campaign and its report."""

from django.urls import URLPattern, path

from campaigns.reporting.pages import campaign, reports


def urls() -> list[URLPattern]:
    return [
        path("campaigns/<int:campaign_id>/", campaign.index, name="campaign"),
        path("campaigns/<int:campaign_id>/live/", campaign.live, name="campaign-live"),
        path("campaigns/<int:campaign_id>/failures/", campaign.failures, name="campaign-failures"),
        path("campaigns/<int:campaign_id>/parts/", campaign.parts, name="campaign-parts"),
        path("campaigns/<int:campaign_id>/recipients/", campaign.recipients, name="campaign-recipients"),
        path("campaigns/<int:campaign_id>/report/", reports.printed, name="campaign-report"),
        path("campaigns/<int:campaign_id>/report.<slug:kind>", reports.download, name="campaign-download"),
    ]

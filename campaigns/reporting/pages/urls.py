"""URLs of owners' pages about a campaign and its report."""

from django.urls import URLPattern, path

from campaigns.reporting.pages import campaign, reports


def urls() -> list[URLPattern]:
    return [
        path("campaigns/<int:campaign_id>/", campaign.show_campaign, name="campaign"),
        path("campaigns/<int:campaign_id>/live/", campaign.show_live_campaign, name="campaign-live"),
        path("campaigns/<int:campaign_id>/failures/", campaign.show_failures, name="campaign-failures"),
        path("campaigns/<int:campaign_id>/parts/", campaign.show_parts, name="campaign-parts"),
        path("campaigns/<int:campaign_id>/recipients/", campaign.show_recipients, name="campaign-recipients"),
        path("campaigns/<int:campaign_id>/report/", reports.show_printable, name="campaign-report"),
        path("campaigns/<int:campaign_id>/report.<slug:kind>", reports.download_report, name="campaign-download"),
    ]

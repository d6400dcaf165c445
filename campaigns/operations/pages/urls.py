"""URLs of owners' pages about the first page and decisions about a campaign."""

from django.urls import URLPattern, path

from campaigns.operations.pages import decisions, home


def urls() -> list[URLPattern]:
    return [
        path("", home.index, name="home"),
        path("campaigns/live/", home.live, name="home-live"),
        path("campaigns/days/", home.days, name="home-days"),
        path("campaigns/<int:campaign_id>/<slug:verb>/", decisions.decide, name="campaign-decide"),
    ]

"""URLs of owners' pages about the first page and decisions about a campaign."""

from django.urls import URLPattern, path

from campaigns.operations.pages import decisions, home


def urls() -> list[URLPattern]:
    return [
        path("", home.show_home, name="home"),
        path("campaigns/live/", home.show_live_home, name="home-live"),
        path("campaigns/days/", home.show_day_chart, name="home-days"),
        path("campaigns/<int:campaign_id>/<slug:verb>/", decisions.decide_on_page, name="campaign-decide"),
    ]

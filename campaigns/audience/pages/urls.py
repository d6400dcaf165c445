"""URLs of owners' pages about answers, and about one recipient."""

from django.urls import URLPattern, path

from campaigns.audience.pages import answers, finds


def urls() -> list[URLPattern]:
    return [
        path("find/", finds.index, name="find"),
        path("answers/", answers.index, name="answers"),
        path("answers/<int:pk>/<slug:verb>/", answers.decide, name="answer-decide"),
    ]

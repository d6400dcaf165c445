"""URLs of owners' pages about answers, and about one recipient."""

from django.urls import URLPattern, path

from campaigns.audience.pages import answers, finds


def urls() -> list[URLPattern]:
    return [
        path("find/", finds.show_find_page, name="find"),
        path("answers/", answers.list_answers_page, name="answers"),
        path("answers/<int:pk>/<slug:verb>/", answers.decide_answer, name="answer-decide"),
    ]

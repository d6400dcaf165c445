"""URLs of owners' pages about suppressions."""

from django.urls import URLPattern, path

from campaigns.suppression.pages import suppressions


def urls() -> list[URLPattern]:
    return [
        path("suppressions/", suppressions.index, name="suppressions"),
        path("suppressions/add/", suppressions.add, name="suppression-add"),
        path("suppressions/import/", suppressions.import_file, name="suppression-import"),
        path("suppressions/export/", suppressions.choose_export, name="suppression-export"),
        path("suppressions/export/file.csv", suppressions.export, name="suppression-file"),
        path("suppressions/<int:pk>/lift/", suppressions.lift, name="suppression-lift"),
    ]

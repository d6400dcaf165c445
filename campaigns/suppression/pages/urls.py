"""URLs of owners' pages about suppressions."""

from django.urls import URLPattern, path

from campaigns.suppression.pages import suppressions


def urls() -> list[URLPattern]:
    return [
        path("suppressions/", suppressions.list_suppressions_page, name="suppressions"),
        path("suppressions/add/", suppressions.suppress_on_page, name="suppression-add"),
        path("suppressions/import/", suppressions.import_file, name="suppression-import"),
        path("suppressions/export/", suppressions.choose_export, name="suppression-export"),
        path("suppressions/export/file.csv", suppressions.export_suppressions, name="suppression-file"),
        path("suppressions/<int:pk>/lift/", suppressions.lift_on_page, name="suppression-lift"),
    ]

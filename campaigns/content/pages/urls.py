"""URLs of owners' pages about templates."""

from django.urls import URLPattern, path

from campaigns.content.pages import template_editor, templates


def urls() -> list[URLPattern]:
    return [
        path("templates/", templates.index, name="templates"),
        path("templates/new/", template_editor.new, name="template-new"),
        path("templates/<int:pk>/", templates.template, name="template"),
        path("templates/<int:pk>/versions/<int:number>/", templates.template, name="template-version"),
        path("templates/<int:pk>/edit/", template_editor.edit, name="template-edit"),
        path("templates/<int:pk>/differences/", templates.differences, name="template-differences"),
        path("templates/<int:pk>/class/", templates.set_class, name="template-class"),
        path("templates/<int:pk>/archive/", templates.archive, name="template-archive"),
        path("templates/<int:pk>/restore/", templates.restore, name="template-restore"),
    ]

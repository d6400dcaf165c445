"""URLs of owners' pages about templates."""

from django.urls import URLPattern, path

from campaigns.content.pages import template_editor, templates


def urls() -> list[URLPattern]:
    return [
        path("templates/", templates.list_templates_page, name="templates"),
        path("templates/new/", template_editor.new_template, name="template-new"),
        path("templates/<int:pk>/", templates.show_template, name="template"),
        path("templates/<int:pk>/versions/<int:number>/", templates.show_template, name="template-version"),
        path("templates/<int:pk>/edit/", template_editor.edit_template, name="template-edit"),
        path("templates/<int:pk>/differences/", templates.show_differences, name="template-differences"),
        path("templates/<int:pk>/class/", templates.set_class, name="template-class"),
        path("templates/<int:pk>/archive/", templates.archive_on_page, name="template-archive"),
        path("templates/<int:pk>/restore/", templates.restore_on_page, name="template-restore"),
    ]

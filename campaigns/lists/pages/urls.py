"""The wizard's URLs: GET shows a step, POST saves it and redirects to the next."""

from django.urls import URLPattern, path

from campaigns.lists.pages import check, drafts, message, preview, recipients, typed_letters


def urls() -> list[URLPattern]:
    one = "drafts/<int:draft_id>"
    return [
        path("campaigns/<int:campaign_id>/copy/", drafts.copy_on_page, name="campaign-copy"),
        path("drafts/typed/", typed_letters.show_typed_draft, name="draft-typed"),
        path("templates/typed/", typed_letters.show_typed_template, name="template-typed"),
        path("campaigns/new/", message.new_campaign, name="new_campaign"),
        path("drafts/", drafts.list_drafts_page, name="drafts"),
        path(f"{one}/message/", message.edit_message, name="draft_message"),
        path(f"{one}/recipients/", recipients.show_list, name="draft_recipients"),
        path(f"{one}/list/", recipients.upload_on_page, name="draft_list"),
        path(f"{one}/columns/", recipients.choose_columns, name="draft_columns"),
        path(f"{one}/hidden-rows/", recipients.hidden_rows, name="draft_hidden_rows"),
        path(f"{one}/leave-out/", recipients.leave_out, name="draft_leave_out"),
        path(f"{one}/check-again/", recipients.check_again, name="draft_check_again"),
        path(f"{one}/progress/", recipients.show_check_progress, name="draft_progress"),
        path(f"{one}/bad-rows.csv", recipients.bad_rows, name="draft_bad_rows"),
        path(f"{one}/preview/<int:number>/", preview.show_preview, name="draft_preview"),
        path(f"{one}/preview/<int:number>/letter/", preview.show_letter, name="draft_letter"),
        path(f"{one}/preview/<int:number>/letter.pdf", preview.letter_pdf, name="draft_letter_pdf"),
        path(f"{one}/test/", preview.send_test_letter, name="draft_test"),
        path(f"{one}/check/", check.show_check, name="draft_check"),
        path(f"{one}/send/", check.send_draft, name="draft_send"),
        path(f"{one}/sent/", drafts.show_sent, name="draft_sent"),
        path(f"{one}/delete/", drafts.delete_on_page, name="draft_delete"),
    ]

"""The feature of what a letter says: kept templates, files, and the letter made from them for one recipient.

- letter_making: the engine's port `letters`; attachments: its files; return_paths: where its bounces arrive.
- template_versions: templates that sponsors keep.
- previews: letters as a recipient would get them.

The language of templates is in campaigns/texts, below the models. Models: models/templates.py, files.py. Doors: api.py,
management/, pages/.
"""

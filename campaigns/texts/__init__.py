"""What stands below the models: texts that come in, and the language of templates. Pure functions, no rows.

- given_texts cleans every text from outside; phone_numbers, formulas (CSV injection), bad_input (the doors' error).
- templates compiles and renders, with parts, headers, addresses (postal columns), filters, signs and sizes.
- cost bounds a template's work; apart and render_pool make costly letters in other processes.
- html_reader, plain_text, mjml: from HTML and MJML to what a letter has.
"""

"""`manage.py demo`: the whole product at work on one screen, with vendors that keep their own books.

`home`: the demo's own home and servers. `processes`: the processes it starts. `story`: the common part of all stories,
and how they are played. `setup`, `scenario`, `document_panels`: the documents' story. `channels`: the story of letters,
SMS and e-mail side by side. `logins`: users who may try it in a browser. `snapshot`: the state at one moment. `screen`,
`report`: its display. `verify`: compares rows and books.
"""

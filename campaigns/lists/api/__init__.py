"""The API's endpoints that take messages and files.

`messages`, with `checking`, `contents`, `recipients`, `print_previews`, `send_orders`, `accepting`: requests to send.
`notifier` notifies vendors' queues of new work.
"""

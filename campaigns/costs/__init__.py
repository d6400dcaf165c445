"""The cost of sending: accounts of accepted messages, and estimates for messages not sent yet."""

"""The API's endpoints about answers, messages to our numbers, and one recipient."""

"""The API's endpoints about sessions, their results, webhooks, and reports of vendors."""

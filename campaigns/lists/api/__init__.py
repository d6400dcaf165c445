"""The API's endpoints that take messages and files."""

"""The API's endpoints about suppressions."""

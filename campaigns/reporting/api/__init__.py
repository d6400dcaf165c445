"""The API's endpoints about costs and days, and forecasts for its answers."""

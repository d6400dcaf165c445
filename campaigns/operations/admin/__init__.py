"""The admin's pages about jobs, messages, doubts, routes and complaints."""

from campaigns.operations.admin import complaints, jobs, messages, routes

__all__ = ["complaints", "jobs", "messages", "routes"]

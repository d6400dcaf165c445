"""Printed letters: HTML is rendered to PDF, and batches of PDFs become files for a vendor that prints them."""

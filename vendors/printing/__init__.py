"""Letters on paper: HTML becomes PDF, and batches of them become files for a vendor that prints them."""

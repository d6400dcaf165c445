"""The campaign report for its owner: progress, reasons of failures, and the outcome for each recipient."""

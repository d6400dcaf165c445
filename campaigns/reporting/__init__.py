"""The feature of results: outcomes of campaigns, their costs and the forecast of their ends.

- own_files: the columns of files that mailhub writes and reads again. export: the campaign report for its owner, with
  campaign_rows, message_rows, reasons (why messages failed) and xlsx_writer; report_files: as a download.
- accounts: the cost of accepted messages.
- forecast: queues of the vendors, and when each job ends.

Models: models/campaigns.py, jobs.py, operations.py. Doors: admin.py, api/, management/, pages/
(of a campaign), mailhub/operations/.
"""

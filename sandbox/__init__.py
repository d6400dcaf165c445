"""What shows and tests the product: a vendor that only simulates delivery (vendor/), and `manage.py demo` (demo/).

The product imports nothing of this package; vendor/ imports nothing of the product.
"""

"""Demonstration and test of the product: a vendor that only simulates delivery (vendor/), and `manage.py demo` (demo/).

The product imports nothing from this package; vendor/ imports nothing from the product.
"""

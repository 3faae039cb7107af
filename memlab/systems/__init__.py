"""The systems whose memories memlab reads: one place each."""

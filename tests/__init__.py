"""The tests of memlab."""

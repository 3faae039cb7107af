"""Where memories live: one module a kind of store."""

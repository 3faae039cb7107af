"""Whether a store is well, and what is done to it every night."""

"""Archive of a store: copies of the memories that were deleted from it. Standard library only."""

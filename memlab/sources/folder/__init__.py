"""What sources that are folders of files have in common."""

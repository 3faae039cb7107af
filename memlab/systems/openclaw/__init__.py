"""OpenClaw: the notes of a workspace, and what was read of them."""

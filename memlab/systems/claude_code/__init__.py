"""Claude Code's folder of memories: its files, its index, its projects, and reads in transcripts.

What Claude Code does differently from other systems belongs here. What every folder of files needs
(atomic changes, locks, git) is in ``sources.folder``, and what a memory means is decided in
``frame`` and ``evidence``.
"""

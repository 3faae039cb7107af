"""Proofs that nothing is lost: kills, full disks, many writers, hostile input."""

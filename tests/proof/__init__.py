"""Nothing is lost: killed processes, full disks, many writers, hostile files and hostile text."""

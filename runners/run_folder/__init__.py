"""Run folders: held by one process, with journals and checkpoints, and read again later."""

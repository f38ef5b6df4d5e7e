"""Command lines: settings from flags and files, help, and errors of one line."""

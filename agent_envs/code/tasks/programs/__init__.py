"""The reference functions, one file a family. See docs/code-tasks.md for how to add one."""

"""Tree of thoughts: tasks that are searched."""

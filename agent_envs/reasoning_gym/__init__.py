"""Tasks of reasoning-gym (extra `reasoning-gym`) as puzzles with one answer."""

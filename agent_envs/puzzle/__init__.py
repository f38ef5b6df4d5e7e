"""Puzzles in which every move is a turn: game of 24, countdown, sudoku, queens, blocks world, sokoban."""

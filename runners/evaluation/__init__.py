"""Evaluation of agents on held-out tasks: success, and calibration of the critic."""

"""Any Gymnasium environment whose observations and actions can be written as text."""

"""Household tasks under ALFWorld's rules, in houses that are generated from a seed. They are not ALFWorld's games."""

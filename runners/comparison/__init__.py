"""What ``runners/compare.py`` is made of: the plan, the processes that carry it out, measures, report."""

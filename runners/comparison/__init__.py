"""Parts of ``turnwise compare``: the entrants, the processes that train them, measures, report."""

"""The `geo` corpus: facts of the real world in English and Chinese, with chained questions. Needs the extra `geo`."""

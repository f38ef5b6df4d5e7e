from mediawiki_cases import mediawiki  # noqa: F401 (a fixture)

"""The live backend: a MediaWiki over its API."""

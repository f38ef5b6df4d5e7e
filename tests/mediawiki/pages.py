"""Prints what the MediaWiki of the tests imports: a fictional world of each split, and the pages of the contract."""

from mediawiki_xml import export, world_pages
from wiki_cases import PAGES

if __name__ == "__main__":
    print("\n".join(export([*world_pages(), *PAGES])))

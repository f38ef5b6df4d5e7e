"""Quality of an algorithm's credit, on episodes whose true progress is known."""

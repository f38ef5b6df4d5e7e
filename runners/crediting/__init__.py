"""What an algorithm's credit is worth on episodes whose true progress is known."""

"""Tables, CSV files and pictures of results."""

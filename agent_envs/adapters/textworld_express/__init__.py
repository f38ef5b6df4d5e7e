"""TextWorld-Express: eight small text games that a Java server plays (extra `textworld-express`)."""

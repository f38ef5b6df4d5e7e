"""The smallest environment: say the word that is shown. An example for people who add one, and a test of learning."""

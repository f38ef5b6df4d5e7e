"""The value function put to use after training: choosing among episodes, leading a search, giving up early."""

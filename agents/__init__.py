"""Everything that acts: the token tree, the actor-critic, chat rendering, engines and rollouts."""

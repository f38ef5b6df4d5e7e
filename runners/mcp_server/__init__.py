"""An environment as a server of the Model Context Protocol."""

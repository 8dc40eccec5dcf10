"""Places the processes of `meme` on a Ray cluster and restarts them. Ray carries no experience and no parameters."""

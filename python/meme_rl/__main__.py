"""`python -m meme_rl` is the `meme` command."""

from .launcher import main

main()

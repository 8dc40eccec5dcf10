"""Seeds of episodes; the same function as in crates/envs/src/seeds.rs."""

MASK = (1 << 64) - 1


def mix(x):
    """Hashes 64 bits with one round of SplitMix64."""
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def episode_seed(run_seed, environment, episode):
    """Returns the seed of an episode of the environment with this index in the run."""
    return mix(mix(mix(run_seed) ^ environment) ^ episode)

//! Who does what: actors, inference, learner, evaluators, bandit; run directory, checkpoints, metrics.
